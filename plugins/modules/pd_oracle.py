#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: pd_oracle
short_description: Hold prefill/decode against a colocated run of the same engine, token by token
version_added: 0.1.0
description:
  - V(recorded) asks a colocated server a set of prompts, each twice, and keeps the greedy tokens that both runs agree
    on with their logprobs in a file.
    V(compared) asks the same of the router and fails unless tokens are equal and logprobs agree. V(present) only
    says whether a reference exists.
  - The prompts have 1, page-1, page, page+1, chunk-1, chunk, chunk+1 and about 2000 tokens, since paging and chunking
    go wrong at their edges. Page and chunk size are those of the engine that runs.
  - A control, a prompt with its first half changed, must give another answer. Otherwise the model does not look at
    the first half, and equality would prove nothing.
  - One prompt at a time, and with every cache flushed before each, so that nothing but the transferred KV can have
    made the answer.
  - A reference belongs to a model, an engine, those of the engine's settings that can change a logprob, and the
    prompts. It is made once and used again as long as these are the same and its checksum is right.
  - In check mode it is skipped.
options:
  state:
    description: What to do.
    type: str
    choices: [recorded, compared, present]
    required: true
  url:
    description:
      - V(recorded), the colocated server. V(compared), the router. V(present), any server of the deployment; without
        one, O(settings) says which reference is meant, before anything runs.
    type: str
  settings:
    description:
      - The colocated server as the plan has it. V(recorded) keeps which reference was made under these settings, and
        V(present) finds it again without a running server. Used are C(args), C(env), C(device) and C(tp).
    type: dict
    default: {}
  worker_urls:
    description:
      - The servers behind the router, a prefill first. Their caches are flushed, and the first one's settings are
        read. For V(recorded) this is the colocated server itself, and the option can be left out.
    type: list
    elements: str
    default: []
  reference_dir:
    description: Directory of the references on this host. Made when missing.
    type: path
    required: true
  model_fingerprint:
    description: What identifies the model's files.
    type: str
    required: true
  engine_fingerprint:
    description: What identifies the engine's environment.
    type: str
    required: true
  model_path:
    description:
      - Directory of the model on this host, for the size of its vocabulary and its special tokens. When left out, the
        path that the engine names.
    type: path
  id_range:
    description:
      - Two numbers; prompts are drawn from the ids from the first up to, not including, the second. When left out,
        the middle of the model's vocabulary without its special tokens.
    type: list
    elements: int
  lengths:
    description: Prompt lengths in tokens, instead of those around page and chunk size.
    type: list
    elements: int
    default: []
  page_size:
    description: Page size in tokens, instead of the engine's own.
    type: int
  chunked_prefill_size:
    description: Chunk size in tokens, instead of the engine's own. V(-1) when prefill is not chunked.
    type: int
  new_tokens:
    description: New tokens of each answer.
    type: int
    default: 32
  seed:
    description: Seed of the prompts.
    type: int
    default: 1
  tolerance:
    description:
      - Largest difference of two logprobs of the same token. When left out, four times what two colocated runs
        differed by, at least 0.000001.
      - Wherever this was measured, on CPU and on GPU, two colocated runs were bit-equal, and so was prefill/decode to
        colocated. It must be small, since a model may hardly look at most of a long prompt.
    type: float
  timeout_s:
    description: Time limit of one answer, in seconds.
    type: float
    default: 120
  api_key:
    description: Key that the servers and the router ask for, when they do.
    type: str
  seen:
    description: What M(pdlab.pdlab.box_facts) read in this run as C(kept). V(present) takes an intact reference in it as there.
    type: dict
  run_dir:
    description: Run folder on the controller that keeps the result.
    type: path
  record:
    description: Name under which the run folder keeps the result.
    type: str
author:
  - the pdlab authors
attributes:
  check_mode:
    description: Skipped in check mode, which must not send a request or flush a cache.
    support: none
  diff_mode:
    description: A reference is recorded or not; there is no difference to show.
    support: none
"""

EXAMPLES = r"""
- name: Is there a reference?
  pdlab.pdlab.pd_oracle:
    state: present
    url: http://127.0.0.1:30000
    reference_dir: /srv/pdlab/state/references
    model_fingerprint: "{{ pd_model_result.fingerprint }}"
    engine_fingerprint: "{{ pd_engine_result.fingerprint }}"
  register: pd_reference

- name: Record one
  pdlab.pdlab.pd_oracle:
    state: recorded
    url: http://127.0.0.1:30009
    reference_dir: /srv/pdlab/state/references
    model_fingerprint: "{{ pd_model_result.fingerprint }}"
    engine_fingerprint: "{{ pd_engine_result.fingerprint }}"
  when: not pd_reference.present

- name: Prefill and decode give what one server gives
  pdlab.pdlab.pd_oracle:
    state: compared
    url: http://127.0.0.1:8000
    worker_urls: [http://127.0.0.1:30000, http://127.0.0.1:30001]
    reference_dir: /srv/pdlab/state/references
    model_fingerprint: "{{ pd_model_result.fingerprint }}"
    engine_fingerprint: "{{ pd_engine_result.fingerprint }}"
    run_dir: "{{ pdlab_run_dir }}"
"""

RETURN = r"""
changed:
  description: Whether a reference was written.
  returned: always
  type: bool
ok:
  description: V(compared), whether every answer is equal and the control differs. Otherwise whether it worked.
  returned: always
  type: bool
present:
  description: Whether an intact reference exists now.
  returned: always
  type: bool
reference:
  description: Fingerprint of the reference.
  returned: when the settings of the engine could be read
  type: str
reference_file:
  description: File of the reference.
  returned: when the settings of the engine could be read
  type: str
lengths:
  description: Prompt lengths in tokens.
  returned: when the settings of the engine could be read
  type: list
  elements: int
dropped:
  description: The lengths left out, each with its reason.
  returned: when the settings of the engine could be read
  type: list
  elements: str
cases:
  description: Number of prompts, the control not counted.
  returned: when the settings of the engine could be read
  type: int
identical:
  description: Prompts whose tokens are equal and whose logprobs agree.
  returned: state is compared
  type: int
max_logprob_diff:
  description: Largest difference of two logprobs of the same token over all prompts.
  returned: state is compared
  type: float
noise:
  description: Largest difference of two logprobs between the two runs of the reference.
  returned: when there is a reference
  type: float
tolerance:
  description: The tolerance that was used.
  returned: state is compared
  type: float
control_differs:
  description: Whether the control gave another answer.
  returned: state is compared
  type: bool
results:
  description: Each prompt.
  returned: state is compared
  type: list
  elements: dict
  contains:
    length:
      description: Its tokens.
      type: int
    identical:
      description: Whether tokens are equal and logprobs agree.
      type: bool
    first_difference:
      description: Index of the first other token; null when there is none.
      type: int
    max_logprob_diff:
      description: Largest difference of two logprobs up to there; null when no answer came.
      type: float
    seconds:
      description: Time of the answer.
      type: float
    why:
      description: What is wrong; null when nothing is.
      type: str
why:
  description: What is wrong and what to do; null when nothing is.
  returned: always
  type: str
"""

import os
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import oracle_cases, run_folder
from ansible_collections.pdlab.pdlab.plugins.module_utils.oracle_run import (
    CASES,
    OracleError,
    Runner,
    find_by_settings,
    find_identity,
    load_reference,
    nearest_reference,
    note_settings,
    reference_path,
    settings_path,
)


def compared(
    runner: Runner, setup: oracle_cases.Setup, answers: list[oracle_cases.Answer], tolerance: float
) -> dict[str, Any]:
    """Ask everything again and hold it against the reference."""
    pairs = [(ids, answers[index]) for index, ids in enumerate(setup.prompts)]
    results = [runner.compare(ids, answer, tolerance) for ids, answer in pairs]
    control = runner.control(setup, answers, tolerance)
    identical = sum(result["identical"] for result in results)
    measured = [result["max_logprob_diff"] for result in results if result["max_logprob_diff"] is not None]
    why = [f"Prompt of {result['length']} tokens: {result['why']}." for result in results if result["why"]]
    if why:
        why.append(
            "Prefill and decode do not give what one server gives: look at the KV transfer (pages lost or mixed up) "
            "and at settings that differ between the servers."
        )
    if control.why:
        why.append(control.why)
    return {
        "ok": identical == len(results) and control.differs,
        "identical": identical,
        "max_logprob_diff": max(measured, default=None),
        "tolerance": tolerance,
        "control_differs": control.differs,
        "results": results,
        "why": " ".join(why) or None,
    }


def act(options: dict[str, Any]) -> dict[str, Any]:
    """Do what `state` asks. Raises OracleError and OSError with a reason for people."""
    if options["url"] is None:
        return found_by_settings(options)
    runner = Runner(
        options["url"],
        options["worker_urls"] or [options["url"]],
        options["new_tokens"],
        options["timeout_s"],
        options["api_key"],
    )
    setup = runner.setup(options)
    identity = find_identity(options, setup)
    path = reference_path(options["reference_dir"], identity)
    reference, unusable = load_reference(path, identity)
    result: dict[str, Any] = {
        "changed": False,
        "ok": True,
        "present": reference is not None,
        "reference": oracle_cases.digest(identity),
        "reference_file": path,
        "lengths": [len(ids) for ids in setup.prompts],
        "dropped": setup.dropped,
        "cases": len(setup.prompts),
        "why": unusable,
    }
    if options["state"] == "recorded" and reference is None:
        reference = runner.record(setup.prompts)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.makedirs(options["reference_dir"], exist_ok=True)
        run_folder.write_json(path, oracle_cases.reference_document(identity, reference, stamp))
        result.update(changed=True, present=True, why=None)
    if options["state"] == "recorded" and options["settings"]:
        note_settings(options, path)
    if options["state"] == "compared":
        if reference is None:
            hint = nearest_reference(options["reference_dir"], identity)
            raise OracleError(
                f"There is no usable reference {path}{f' ({unusable})' if unusable else ''}. {hint}"
                "`pdlab deploy` records one from a colocated server; to make it anew, remove "
                f"{options['reference_dir']} first."
            )
        tolerance = options["tolerance"]
        if tolerance is None:
            tolerance = oracle_cases.tolerance_for(reference.noise)
        result.update(compared(runner, setup, reference.answers, tolerance))
    if reference is not None:
        result["noise"] = reference.noise
    return result


def found_by_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Say whether the reference that was recorded under these settings is there and intact."""
    index = settings_path(options)
    path, why = find_by_settings(index)
    return {
        "changed": False,
        "ok": True,
        "present": path is not None,
        "reference_file": path or index,
        "why": why,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["recorded", "compared", "present"], "required": True},
            "url": {"type": "str"},
            "settings": {"type": "dict", "default": {}},
            "worker_urls": {"type": "list", "elements": "str", "default": []},
            "reference_dir": {"type": "path", "required": True},
            "model_fingerprint": {"type": "str", "required": True},
            "engine_fingerprint": {"type": "str", "required": True},
            "model_path": {"type": "path"},
            "id_range": {"type": "list", "elements": "int"},
            "lengths": {"type": "list", "elements": "int", "default": CASES["lengths"]},
            "page_size": {"type": "int"},
            "chunked_prefill_size": {"type": "int"},
            "new_tokens": {"type": "int", "default": CASES["new_tokens"]},
            "seed": {"type": "int", "default": CASES["seed"]},
            "tolerance": {"type": "float"},
            "timeout_s": {"type": "float", "default": 120.0},
            "api_key": {"type": "str", "no_log": True},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
            "seen": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    options = module.params
    faults = []
    if options["new_tokens"] < 2:
        faults.append(f"new_tokens: {options['new_tokens']}; decode makes tokens from the second on, so give 2 or more")
    if options["tolerance"] is not None and options["tolerance"] < 0:
        faults.append(f"tolerance: {options['tolerance']} is negative; give 0 or more")
    if options["id_range"] and (
        len(options["id_range"]) != 2 or not 0 <= options["id_range"][0] < options["id_range"][1] - 1
    ):
        faults.append(
            f"id_range: {options['id_range']}; give two numbers, the first at least 2 smaller than the second"
        )
    if options["url"] is None and not (options["state"] == "present" and options["settings"]):
        faults.append("url: missing; only `present` with `settings` does without a server")
    if options["state"] == "compared" and not options["worker_urls"]:
        faults.append("worker_urls: missing; the caches of the servers behind the router must be flushed")
    if faults:
        module.fail_json(msg="\n".join(faults), ok=False, why="\n".join(faults))
    if module.check_mode and options["url"] is not None:
        module.exit_json(changed=False, skipped=True, msg="Not asked in check mode.")
    try:
        result = act(options)
    except (OracleError, OSError) as error:
        module.fail_json(msg=str(error), ok=False, present=False, why=str(error))
    if not result["ok"]:
        module.fail_json(msg=result["why"], **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
