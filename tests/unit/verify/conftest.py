# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.verify.stack import Stack, healthy_stack


@pytest.fixture
def stack() -> Iterator[Stack]:
    with healthy_stack() as whole:
        yield whole
