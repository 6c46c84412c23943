# SPDX-License-Identifier: Apache-2.0
"""What `--json` prints of a run that is over: of one deployment its report, of a run of arms the evidence of all legs.

Published as docs/schemas/report.json and evidence.json. The folder of a run of arms has no points of its own, so a
report of it would be empty.
"""

from __future__ import annotations

from typing import Any

from pdlab.results.build import build_report
from pdlab.store import RunFolder


def run_document(folder: RunFolder) -> dict[str, Any]:
    """The document of a run, as plain values."""
    # The legs of a run whose arms.json was lost are there all the same.
    if folder.arms_document() is None and not folder.leg_folders():
        return build_report(folder.read()).model_dump(mode="json")
    from pdlab.evidence.build import build_evidence
    from pdlab.evidence.legs import legs_of

    return build_evidence(legs_of(folder), folder.run_name).model_dump(mode="json")
