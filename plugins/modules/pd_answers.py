#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: pd_answers
short_description: Ask questions whose answers are known
version_added: 0.1.0
description:
  - Asks each question through the OpenAI-compatible C(/v1/chat/completions) at temperature 0, one after another,
    and compares the answer with the expected one.
  - "The comparison forgives form (case, text around it, punctuation, thousands separators, another way to write a
    list) and never another number: for V(391), the answers V(3910), V(-391), V(391.5), V(39 1) and V(not 391) are
    wrong. Write lists with a space after each comma."
  - What stands in a closed C(<think>) block at the start of an answer is not part of the answer.
  - All questions are asked, also after a wrong answer. Fails when any answer is wrong or missing.
  - Never changes anything. In check mode it is skipped.
options:
  url:
    description: Address of the router, or of a colocated server.
    type: str
    required: true
  model:
    description: The served model's name.
    type: str
    required: true
  answers:
    description: The questions.
    type: list
    elements: dict
    required: true
    suboptions:
      prompt:
        description: The question.
        type: str
        required: true
      expected:
        description: Its answer. Has at least one word or number.
        type: str
        required: true
  max_tokens:
    description: Longest answer in tokens. A model that thinks aloud needs more.
    type: int
    default: 512
  request:
    description: Further fields of the request, for example C(chat_template_kwargs).
    type: dict
    default: {}
  timeout_s:
    description: Time limit of one answer, in seconds.
    type: float
    default: 120
  api_key:
    description: Key that the router asks for, when it does.
    type: str
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
    description: Skipped in check mode, which must not send a request.
    support: none
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
"""

EXAMPLES = r"""
- name: The deployment knows three answers
  pdlab.pdlab.pd_answers:
    url: http://127.0.0.1:8000
    model: deepseek-v4-flash
    answers:
      - {prompt: "What is 17*23? Answer with the number only.", expected: "391"}
      - {prompt: "What is the capital of France? Answer in one word.", expected: Paris}
    run_dir: "{{ pdlab_run_dir }}"

- name: They are still right after the benchmark
  pdlab.pdlab.pd_answers:
    url: http://127.0.0.1:8000
    model: deepseek-v4-flash
    answers: "{{ pd_answers[:1] }}"
    record: stability
    run_dir: "{{ pdlab_run_dir }}"
"""

RETURN = r"""
ok:
  description: Whether every answer was right.
  returned: always
  type: bool
answers:
  description: Every question with what came, in the order asked.
  returned: always
  type: list
  elements: dict
  contains:
    prompt:
      description: The question.
      type: str
    expected:
      description: The expected answer.
      type: str
    got:
      description: The whole answer; null when none came.
      type: str
    ok:
      description: Whether it was right.
      type: bool
    seconds:
      description: Time until the answer was there.
      type: float
    why:
      description: What is wrong with it; null when nothing is.
      type: str
why:
  description: The wrong answers in one line each; null when there are none.
  returned: always
  type: str
"""

import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.pdlab.pdlab.plugins.module_utils import answer_match, http_json, processes

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def without_thoughts(text: str) -> str:
    """The answer after a closed <think> block at its start."""
    return _THOUGHT.sub("", text, count=1) if _THOUGHT.match(text) else text


def read_text(reply: http_json.Reply) -> tuple[str | None, str | None]:
    """The text of a chat completion, and why there is none."""
    if not reply.ok:
        return None, f"no answer: {reply.describe()}"
    try:
        choice = reply.body["choices"][0]
        text = choice["message"].get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        return None, f"not a chat completion: {reply.describe()}"
    if text is None:
        return None, f"the answer has no content (finish_reason {choice.get('finish_reason')!r}); raise max_tokens"
    return str(text), None


def ask(url: str, model: str, question: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Ask one question; return its entry in the result."""
    payload = {
        **options["request"],
        "model": model,
        "messages": [{"role": "user", "content": question["prompt"]}],
        "temperature": 0,
        "max_tokens": options["max_tokens"],
    }
    reply = http_json.post(url.rstrip("/") + "/v1/chat/completions", payload, options["timeout_s"], options["api_key"])
    got, why = read_text(reply)
    if got is not None:
        why = answer_match.match(question["expected"], without_thoughts(got)).why
    return {
        "prompt": question["prompt"],
        "expected": question["expected"],
        "got": got,
        "ok": why is None,
        "seconds": round(reply.seconds, 3),
        "why": why,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "required": True},
            "answers": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "prompt": {"type": "str", "required": True},
                    "expected": {"type": "str", "required": True},
                },
            },
            "max_tokens": {"type": "int", "default": 512},
            "request": {"type": "dict", "default": {}},
            "timeout_s": {"type": "float", "default": 120.0},
            "api_key": {"type": "str", "no_log": True},
            "run_dir": {"type": "path"},
            "record": {"type": "str"},
        },
        supports_check_mode=True,
    )
    options = module.params
    faults = ["answers: the list is empty; name at least one question"] if not options["answers"] else []
    for index, question in enumerate(options["answers"]):
        try:
            answer_match.match(question["expected"], "")
        except ValueError as error:
            faults.append(f"answers[{index}].expected: {error}; every answer would pass")
    if faults:
        module.fail_json(msg="\n".join(faults), ok=False, answers=[], why="\n".join(faults))
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="Not asked in check mode.")
    asked: list[dict[str, Any]] = []
    for question in options["answers"]:
        if processes.controller_gone():
            module.fail_json(msg="The controller is gone.", ok=False, answers=asked, why="The controller is gone.")
        asked.append(ask(options["url"], options["model"], question, options))
    wrong = [f"{entry['prompt']!r}: {entry['why']} (got {entry['got']!r})" for entry in asked if not entry["ok"]]
    if wrong:
        why = f"{len(wrong)} of {len(asked)} answers are wrong. " + "; ".join(wrong)
        module.fail_json(msg=why, ok=False, answers=asked, why=why)
    module.exit_json(changed=False, ok=True, answers=asked, why=None)


if __name__ == "__main__":
    main()
