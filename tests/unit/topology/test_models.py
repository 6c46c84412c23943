# SPDX-License-Identifier: Apache-2.0
"""The published shape of the plan holds what the resolver makes, and nothing else."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from pdlab.topology import Plan

from .conftest import two_hosts


def test_every_kind_of_plan_fits_the_models_and_comes_back_the_same(
    gpu_box: dict[str, Any], cpu_box: dict[str, Any], plan_of: Any
) -> None:
    colocated = {**gpu_box, "pd_servers": [{"name": "c", "role": "colocated", "gpus": [0]}], "pd_router": None}
    tuned = {**cpu_box, "pd_oracle": {"lengths": [1, 64], "tolerance": 0.5}, "pd_benchmark": {"sweep": "campaign"}}
    for variables in (gpu_box, cpu_box, colocated, tuned):
        plan = plan_of(variables)
        assert Plan.model_validate(plan).model_dump(exclude_unset=True) == plan


def test_a_fleet_fits_the_models(fleet: dict[str, Any], plan_of: Any) -> None:
    assert Plan.model_validate(plan_of(fleet, two_hosts())).servers[1].host == "box2"


def test_the_json_schema_accepts_a_plan_and_refuses_an_unknown_key(gpu_box: dict[str, Any], plan_of: Any) -> None:
    plan, schema = plan_of(gpu_box), Plan.model_json_schema()
    jsonschema.validate(plan, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**plan, "extra": 1}, schema)


def test_the_models_refuse_a_port_out_of_range(gpu_box: dict[str, Any], plan_of: Any) -> None:
    plan = plan_of(gpu_box)
    plan["servers"][0]["port"] = 0
    with pytest.raises(ValidationError, match="port"):
        Plan.model_validate(plan)
