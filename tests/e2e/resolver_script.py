# SPDX-License-Identifier: Apache-2.0
"""Run with the engine's Python: asks the engine to resolve its arguments, and says what it chose or why it stopped.

Reads a JSON list of {"model": config.json's content, "argv": [...], "chip": "sm120"|"sm100"|"sm90"} from stdin and
writes a list of {"chosen": {...}} or {"stopped": text}. Needs no GPU: the engine is told which chip it is on.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

# Before the engine is imported, which logs while it is.
logging.disable(logging.CRITICAL)

from sglang.srt.arg_groups.model_override_base import resolved_view  # noqa: E402
from sglang.srt.arg_groups.pipeline import run_resolution_pipeline  # noqa: E402
from sglang.srt.runtime_context import override_platform  # noqa: E402
from sglang.srt.server_args import prepare_server_args  # noqa: E402

CHIPS = {
    "sm90": {"is_sm90": True},
    "sm100": {"is_sm100": True, "is_blackwell": True},
    "sm120": {"is_sm120": True, "is_blackwell": True},
}
SHOWN = (
    "moe_runner_backend",
    "speculative_moe_runner_backend",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "page_size",
    "kv_cache_dtype",
)


def resolve(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve one command line."""
    (folder / "config.json").write_text(json.dumps(case["model"]))
    common = ["--model-path", str(folder), "--skip-tokenizer-init", "--device", "cuda"]
    override = override_platform(**CHIPS[case["chip"]])
    override.install()
    try:
        arguments = prepare_server_args([*common, *case["argv"]])
        run_resolution_pipeline(arguments)
        view = resolved_view(arguments)
        return {"chosen": {name: getattr(view, name) for name in SHOWN}}
    except (Exception, SystemExit) as error:
        return {"stopped": f"{type(error).__name__}: {error}"}
    finally:
        override.restore()


def main() -> None:
    """Answer all cases."""
    answers = []
    for case in json.load(sys.stdin):
        with tempfile.TemporaryDirectory() as folder:
            answers.append(resolve(case, Path(folder)))
    print("\n" + json.dumps(answers))


main()
