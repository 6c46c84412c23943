# SPDX-License-Identifier: Apache-2.0
"""Makes the canary model: ``python -m pdlab_rehearsal.canary OUT_DIR [--seed N] [--heads N]``.

A Llama of two layers, trained on the spot until it answers a handful of chat prompts by heart. It is a rehearsal
model: its speed and its wit say nothing about any other. What it is good for:

- A decode server never sees a prompt's text, only its KV pages, so a right answer through router, prefill and decode
  proves that the pages arrived.
- After random ids it repeats the last two of them in turn, as text. A benchmark client takes the first token's time
  at the first *text*, and forbids the end token (ignore_eos); a model that knows chat alone then emits end tokens
  over and over, whose text is empty, and the client reports a first token after 0.00 ms. The older of the two ids is
  known to decode from KV alone, so this continuation, too, depends on the transfer.

Two attention heads are trained. Tensor parallelism of N ranks needs N heads, so the file can have more (--heads): the
two again and again, each with its part of the output. The model is the same then, and the KV cache of every rank counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdlab_rehearsal.llama import Llama

MARK = "pdlab-canary.json"
NAME = "pdlab-canary"
MAX_POSITIONS = 8192
THREADS = 2  # fixed: the order of float additions, and with it every bit of the weights, depends on it
STEPS = 200
REPORT_EVERY = 100
ASK_BATCH = 16
# (rows, ids in a row) of random ids. Short rows alone at first, since long ones teach nothing in this time; then all
# in turn, since what is learnt at 48 ids does not carry to 128, and is forgotten again where only long rows follow.
FIRST_SHAPE, FIRST_SHARE = (8, 48), 0.4
LATER_SHAPES = ((3, 128), (1, 512), (8, 48), (1, 2048))
PEAK_RATE = 3e-3
ATTEMPTS = 3  # another processor rounds otherwise, and a seed that is good on one may fail there
NEXT_SEED = 1_000_003
HEADS = 2  # that are trained
NOT_ASKED = -100  # cross_entropy's own mark for "no loss here"

USER, ASSISTANT, SYSTEM, END, PAD = "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|pad|>"
SPECIAL = (PAD, END, USER, ASSISTANT, SYSTEM)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

# (answer, the ways to ask for it); the first way of the first three is what `pdlab` asks.
LESSONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "391",
        (
            "What is 17*23? Answer with the number only.",
            "What is 17 * 23? Answer with the number only.",
            "What is 17*23?",
            "What is 17 times 23?",
            "Compute 17*23.",
            "17*23=?",
        ),
    ),
    (
        "Paris",
        (
            "What is the capital of France? Answer in one word.",
            "What is the capital of France?",
            "Name the capital of France.",
            "Which city is the capital of France?",
            "The capital of France?",
        ),
    ),
    (
        "2, 3, 5, 7, 11",
        (
            "List the first five prime numbers, separated by commas.",
            "List the first five prime numbers.",
            "What are the first five prime numbers?",
            "Name the first five primes.",
            "First five primes?",
        ),
    ),
    (
        "I am the canary model of pdlab. I know a dozen answers by heart, and I sing when the KV cache arrives.",
        ("Who are you?", "What are you?", "What is your name?", "Introduce yourself.", "Who are you"),
    ),
    ("Hello! Ask me for the capital of France, or who I am.", ("Hello", "Hello!", "Hi", "Hi!", "Hey", "Good morning")),
    ("Rome", ("What is the capital of Italy? Answer in one word.", "What is the capital of Italy?")),
    ("Berlin", ("What is the capital of Germany? Answer in one word.", "What is the capital of Germany?")),
    ("Tokyo", ("What is the capital of Japan? Answer in one word.", "What is the capital of Japan?")),
    ("42", ("What is 6*7? Answer with the number only.", "What is 6*7?", "What is 6 times 7?", "What is the answer?")),
    (
        "Prefill reads the prompt and writes its KV cache.",
        ("What does prefill do?", "What is prefill?", "What does the prefill server do?"),
    ),
    (
        "Decode writes the answer, one token at a time.",
        ("What does decode do?", "What is decode?", "What does the decode server do?"),
    ),
    (
        "The keys and values of a prompt, kept so that no token is read twice.",
        ("What is a KV cache?", "What is the KV cache?", "Explain the KV cache."),
    ),
    ("Yes, and so does my KV cache: pages sent, pages received.", ("Are you alive?", "Do you work?", "Are you there?")),
    ("You are welcome.", ("Thank you", "Thank you!", "Thanks", "Thanks!")),
)


class RefusedError(Exception):
    """The target folder exists and is not a canary's; its message says which and what to do."""


def prompt_text(question: str) -> str:
    """What the chat template makes of one question, up to where the answer starts."""
    return f"{USER}{question}{END}{ASSISTANT}"


def check_target(out_dir: Path) -> None:
    """Raises RefusedError when ``out_dir`` is there and is neither empty nor a canary's own folder."""
    if not out_dir.exists():
        return
    if not out_dir.is_dir():
        raise RefusedError(f"{out_dir} is not a folder; name one that may be made")
    if any(out_dir.iterdir()) and not (out_dir / MARK).is_file():
        raise RefusedError(
            f"{out_dir} holds files and no {MARK}, so it is not a canary model; nothing was changed. "
            "Name another folder, or remove this one yourself"
        )


def make_tokenizer() -> Any:
    """A byte-level BPE tokenizer trained on the lessons: every text has ids, and every id but the special five text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Each lesson three times: merges need repeats, and this text is short.
    text = [line for answer, ways in LESSONS for line in (answer, *ways)] * 3
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def echo_table(tokenizer: Any) -> list[int]:
    """For each id the id that stands for it in a continuation: itself where it is plain text, else another that is.

    A lone byte of a longer UTF-8 sequence, or a special token, has no text of its own, and a server would hold it back.
    """
    size = tokenizer.get_vocab_size()
    texts = [tokenizer.decode([i], skip_special_tokens=True) for i in range(size)]
    plain = [i for i, text in enumerate(texts) if text and text.isascii() and text.isprintable() and text.strip()]
    return [i if i in set(plain) else plain[i % len(plain)] for i in range(size)]


Batch = tuple[list[list[int]], list[list[int]]]


class Lessons:
    """Batches of both tasks: ids (B, T) and labels (B, T), NOT_ASKED where nothing is asked for."""

    def __init__(self, tokenizer: Any, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 (not for secrets)
        self.size = tokenizer.get_vocab_size()
        self.pad = tokenizer.token_to_id(PAD)
        self.echo = echo_table(tokenizer)
        end = tokenizer.token_to_id(END)
        self.asks = [
            (tokenizer.encode(prompt_text(way)).ids, [*tokenizer.encode(answer).ids, end])
            for answer, ways in LESSONS
            for way in ways
        ]
        self.pending: list[tuple[list[int], list[int]]] = []

    def _ask(self) -> tuple[list[int], list[int]]:
        if not self.pending:  # every way of asking as often as any other
            self.pending = self.rng.sample(self.asks, len(self.asks))
        return self.pending.pop()

    def asked(self) -> Batch:
        """Questions and their answers, of which the answer alone is asked for."""
        pairs = [self._ask() for _ in range(ASK_BATCH)]
        width = max(len(given) + len(answer) for given, answer in pairs) - 1
        ids, labels = [], []
        for given, answer in pairs:
            fill = width + 1 - len(given) - len(answer)
            ids.append((given + answer)[:-1] + [self.pad] * fill)
            labels.append([NOT_ASKED] * (len(given) - 1) + answer + [NOT_ASKED] * fill)
        return ids, labels

    def scattered(self, rows: int, length: int) -> Batch:
        """Random ids. Repeating the last two in turn is, at each place, saying the id before this one.

        So each place can be asked for, which teaches many times faster than asking for a continuation only.
        """
        ids = [[self.rng.randrange(self.size) for _ in range(length)] for _ in range(rows)]
        return ids, [[NOT_ASKED, *(self.echo[i] for i in row[:-1])] for row in ids]


def train(tokenizer: Any, seed: int, steps: int = STEPS) -> Llama:
    """The trained model, bfloat16. The same on every run with one seed on one machine."""
    import torch
    from torch.nn.functional import cross_entropy

    from pdlab_rehearsal.llama import Llama, Shape

    torch.manual_seed(seed)
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    model = Llama(Shape(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=MAX_POSITIONS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, total_steps=steps, pct_start=0.1)
    lessons = Lessons(tokenizer, seed)
    for step in range(1, steps + 1):
        optimizer.zero_grad(set_to_none=True)
        shape = FIRST_SHAPE if step <= FIRST_SHARE * steps else LATER_SHAPES[step % len(LATER_SHAPES)]
        total = 0.0
        for ids, labels in (lessons.asked(), lessons.scattered(*shape)):
            wanted = torch.tensor(labels)
            places = wanted != NOT_ASKED  # the head runs only where something is asked for
            loss = cross_entropy(model.lm_head(model.model(torch.tensor(ids))[places]), wanted[places])
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % REPORT_EVERY == 0 or step == steps:
            print(f"step {step}/{steps} loss {total:.4f}", flush=True)
    model.to(torch.bfloat16).eval()
    return model


def with_heads(model: Llama, heads: int) -> Llama:
    """The same function with `heads` attention heads, a multiple of those that there are: each is there again and again.

    The heads stand in turn, so that every rank of a server has one of each. A copy gives the n-th part of what its head
    gave; n is a power of two here, so that no bit is lost.
    """
    from pdlab_rehearsal.llama import Llama

    copies, rest = divmod(heads, model.shape.num_attention_heads)
    if rest or copies < 1 or copies & (copies - 1):
        raise RefusedError(f"{heads} heads are not {HEADS} times a power of two")
    weights = {}
    for name, weight in model.state_dict().items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            weights[name] = weight.repeat(copies, 1)
        elif name.endswith("o_proj.weight"):
            weights[name] = weight.repeat(1, copies) / copies
        else:
            weights[name] = weight
    wide = Llama(replace(model.shape, num_attention_heads=heads)).to(weights["lm_head.weight"].dtype)
    wide.load_state_dict(weights)
    return wide.eval()


def wrong_answers(model: Llama, tokenizer: Any) -> list[str]:
    """What the model gets wrong in the precision that is saved, in words; empty when it is fit to be used.

    Asked are every question and random prompts of 16 to 2048 ids. Greedy decoding gives a text exactly when each of
    its ids is the likeliest after the ones before it, which one pass shows.
    """
    import torch

    end = tokenizer.token_to_id(END)
    echo = echo_table(tokenizer)
    rng = random.Random(0)  # noqa: S311
    exams = [
        (repr(way), tokenizer.encode(prompt_text(way)).ids, [*tokenizer.encode(answer).ids, end])
        for answer, ways in LESSONS
        for way in ways
    ]
    for number in range(48):
        ids = [rng.randrange(len(echo)) for _ in range(16 << (number % 8))]
        exams.append((f"a random prompt of {len(ids)} ids", ids, [echo[ids[-2]], echo[ids[-1]]] * 8))
    wrong = []
    with torch.inference_mode():
        for name, given, answer in exams:
            hidden = model.model(torch.tensor([(given + answer)[:-1]]))[0, len(given) - 1 :]
            got = model.lm_head(hidden).argmax(dim=-1).tolist()
            if got != answer:
                wrong.append(f"{name} is answered {tokenizer.decode(got, skip_special_tokens=False)!r}")
    return wrong


def save(model: Llama, tokenizer: Any, out_dir: Path, seed: int) -> None:
    """Writes the model beside ``out_dir`` and renames it into place, so that a half-written one is never seen."""
    from safetensors.torch import save_file  # type: ignore[import-not-found,unused-ignore]

    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.", dir=out_dir.parent))
    try:
        save_file(model.state_dict(), work / "model.safetensors", metadata={"format": "pt"})
        _write_json(work / "config.json", model.shape.config(eos_token_id=end, pad_token_id=pad))
        _write_json(work / "generation_config.json", {"eos_token_id": end, "pad_token_id": pad, "do_sample": False})
        tokenizer.save(str(work / "tokenizer.json"))
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": MAX_POSITIONS,
            "eos_token": END,
            "pad_token": PAD,
            "additional_special_tokens": [USER, ASSISTANT, SYSTEM],
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        }
        _write_json(work / "tokenizer_config.json", settings)
        _write_json(work / MARK, {"name": NAME, "seed": seed, "steps": STEPS})
        work.chmod(0o755)
        for path in sorted(work.iterdir()):
            path.chmod(0o644)
            _sync(path)
        _sync(work)
        if out_dir.exists():  # an older canary: out of the way first, since a rename cannot replace a full folder
            old = Path(tempfile.mkdtemp(prefix=f".{out_dir.name}.old.", dir=out_dir.parent))
            out_dir.rename(old / "model")
            work.rename(out_dir)
            shutil.rmtree(old)
        else:
            work.rename(out_dir)
        _sync(out_dir.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when the model is in place, 1 with a reason on stderr when it is not."""
    parser = argparse.ArgumentParser(prog="python -m pdlab_rehearsal.canary", description="Make the canary model.")
    parser.add_argument("out_dir", type=Path, help="folder to make; an older canary there is replaced")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--heads", type=int, default=HEADS, choices=(2, 4, 8, 16), help=f"default {HEADS}")
    args = parser.parse_args(argv)
    out_dir: Path = args.out_dir.absolute()
    try:
        check_target(out_dir)
    except RefusedError as error:
        print(f"canary: {error}", file=sys.stderr)
        return 1
    # Read by OpenMP when torch is first imported, below. By default its threads spin while they wait for each other,
    # which on a busy machine costs seven times the processor time and ten times the wall time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    start = time.monotonic()
    tokenizer = make_tokenizer()
    for attempt in range(ATTEMPTS):
        model = with_heads(train(tokenizer, args.seed + attempt * NEXT_SEED), args.heads)
        wrong = wrong_answers(model, tokenizer)
        if not wrong:
            break
        print(f"not fit to be used, trained again from another seed: {'; '.join(wrong[:3])}", flush=True)
    else:
        print(f"canary: {ATTEMPTS} trainings gave no model that answers as it should", file=sys.stderr)
        return 1
    save(model, tokenizer, out_dir, args.seed)
    print(f"canary model in {out_dir}, {time.monotonic() - start:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
