# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a prefill/decode deployment ready? Six steps, each of which finds a fault that the ones before it cannot.

/health proves nothing about KV transfer: it generates with a fake bootstrap host. Sources of the facts below, in
sglang 0.5.23: srt/entrypoints/http_server.py (/ready, /server_info), srt/disaggregation/common/conn.py
(CommonKVBootstrapServer, /route), and the router's /readiness and /workers.
"""

from __future__ import annotations

import ipaddress
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ansible_collections.pdlab.pdlab.plugins.module_utils import http_json, kv_metrics
from ansible_collections.pdlab.pdlab.plugins.module_utils.command_line import COLOCATED, DECODE, PREFILL
from ansible_collections.pdlab.pdlab.plugins.module_utils.router_workers import WORKER_TYPES, listed_workers

REQUEST_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
WATCH_S = 0.2
# A prefill rank tries 5 times with 1, 2, 4 and 8 s between and then gives up for good, its server still "healthy"
# (common/conn.py, _register_topology_row).
REGISTRATION_S = 20.0
METRICS_SETTLE_S = 5.0
GENERATED_TOKENS = 4
# What `/server_info` calls each role.
MODES = {PREFILL: "prefill", DECODE: "decode", COLOCATED: "null"}
# Must be equal on all roles. The first two are checked by the engine only at the first request, where a mismatch
# takes the decode scheduler down.
AGREED_KEYS = ("page_size", "kv_cache_dtype", "dtype", "quantization", "version", "served_model_name")
PD_KEYS = ("disaggregation_transfer_backend",)

ALL_RANKS = (-1, -1, -1, -1)


class Outcome(NamedTuple):
    """One look at one step. `final`: waiting will not change it."""

    ok: bool
    seen: str
    why: str | None = None
    final: bool = False


class Step(NamedTuple):
    """A step of the gate: `check` looks once, `wait_s` bounds how long it may look again."""

    id: str
    name: str
    check: Callable[[], Outcome]
    applies: bool
    wait_s: float


class ReadyGate:
    """Runs the steps in order on this host and stops at the first that fails.

    `servers` and `router` are as in the plan (name, role, host, address, port, url, bootstrap_port, tp, model_path,
    environment). `stop_reason` is called while waiting: a string ends the gate with it. `stranger` is asked whether a
    port belongs to another process than the named server's: it answers with that process, or None when the port is the
    server's own or nobody can tell.
    """

    def __init__(
        self,
        servers: Sequence[Mapping[str, Any]],
        router: Mapping[str, Any] | None,
        timeout_s: float,
        poll_s: float,
        generation_timeout_s: float,
        api_key: str | None,
        stop_reason: Callable[[], str | None],
        stranger: Callable[[str, int], str | None] = lambda _name, _port: None,
    ) -> None:
        self.servers = servers
        self.prefills = [server for server in servers if server["role"] == PREFILL]
        self.decodes = [server for server in servers if server["role"] == DECODE]
        self.router = router
        self.timeout_s = timeout_s
        self.poll_s = poll_s
        self.generation_timeout_s = generation_timeout_s
        self.api_key = api_key
        self.stop_reason = stop_reason
        self.stranger = stranger
        self._answering: dict[str, str] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._routes: dict[str, dict[str, Any]] = {}

    def run(self) -> dict[str, Any]:
        """All steps: {"ok", "steps": [{"id", "name", "ok", "seconds", "seen", "why"}], "why"}.

        A step that does not apply has ok null and says so in `seen`; steps after a failed one are not in the list.
        """
        disaggregated = bool(self.prefills)
        everything = self.timeout_s
        steps = (
            Step("servers", "every server answers", self.servers_answer, True, everything),
            Step(
                "registration",
                "prefill is registered for KV transfer",
                self.prefills_registered,
                disaggregated,
                REGISTRATION_S,
            ),
            Step("ranks", "every prefill rank can be reached", self.ranks_reachable, disaggregated, 0.0),
            Step("agreement", "the servers agree with each other and with the plan", self.roles_agree, True, 0.0),
            Step("router", "the router sees every server", self.router_ready, self.router is not None, everything),
            Step("generation", "a real generation", self.generates, True, everything),
        )
        deadline = time.monotonic() + self.timeout_s
        records: list[dict[str, Any]] = []
        for step in steps:
            started = time.monotonic()
            if not step.applies:
                outcome = Outcome(True, "not applicable: " + self._not_applicable(step))
            else:
                # A step with little time left still gets its one look.
                outcome = self._wait(step.check, min(deadline, started + step.wait_s))
            records.append(
                {
                    "id": step.id,
                    "name": step.name,
                    "ok": outcome.ok if step.applies else None,
                    "seconds": round(time.monotonic() - started, 3),
                    "seen": outcome.seen,
                    "why": outcome.why,
                }
            )
            if not outcome.ok:
                return {"ok": False, "steps": records, "why": f"{step.name}: no. {outcome.why}"}
        return {"ok": True, "steps": records, "why": None}

    def _not_applicable(self, step: Step) -> str:
        return "there is no router" if step.id == "router" else "no server has the role prefill"

    def _wait(self, check: Callable[[], Outcome], deadline: float) -> Outcome:
        seen = "nothing yet"
        while True:
            reason = self.stop_reason()
            if reason:
                return Outcome(False, seen, reason, final=True)
            outcome = self._look(check)
            seen = outcome.seen or seen
            if outcome.ok or outcome.final or time.monotonic() + self.poll_s > deadline:
                # A server that died during the look explains the look.
                reason = None if outcome.ok else self.stop_reason()
                return outcome._replace(why=reason) if reason else outcome
            time.sleep(self.poll_s)

    def _look(self, check: Callable[[], Outcome]) -> Outcome:
        """Run one look beside watching the servers: a request to a dead one would hold it up until its time limit."""
        looked: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()

        def look() -> None:
            try:
                looked.put(check())
            except BaseException as error:
                looked.put(error)

        threading.Thread(target=look, daemon=True).start()
        while True:
            try:
                outcome = looked.get(timeout=WATCH_S)
            except queue.Empty:
                reason = self.stop_reason()
                if reason:
                    return Outcome(False, "", reason, final=True)
                continue
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

    # 1 -------------------------------------------------------------------------------------------------------------

    def servers_answer(self) -> Outcome:
        """GET /ready of each server; /health where an older engine has no /ready."""
        waiting = []
        for server in self.servers:
            if server["name"] in self._answering:
                continue
            path = "/ready"
            reply = self._get(server, path)
            if reply.status == 404:
                path = "/health"
                reply = self._get(server, path, timeout_s=30.0)
            if reply.ok:
                self._answering[server["name"]] = path
            else:
                waiting.append(f"{server['name']} {path}: {reply.describe()}")
        seen = [f"{name} {path}: 200" for name, path in self._answering.items()]
        if not waiting:
            return Outcome(True, "; ".join(seen))
        return Outcome(
            False,
            "; ".join(seen + waiting),
            f"After {self.timeout_s:g} s still waiting for {'; '.join(waiting)}. Look at the log of that server; "
            "when it is still loading, give more time (timeout_s).",
        )

    # 2 -------------------------------------------------------------------------------------------------------------

    def prefills_registered(self) -> Outcome:
        """GET /route with all ranks -1 on each bootstrap port, and hold the answer against the server behind it."""
        doubled = _doubled((p["name"], (p["address"], p["bootstrap_port"])) for p in self.prefills)
        if doubled:
            return Outcome(
                False,
                f"one bootstrap port for {doubled}",
                f"{doubled} have the same bootstrap port, so their ranks overwrite each other's addresses. Give each "
                "prefill of a host its own bootstrap_port.",
                final=True,
            )
        seen, faults = [], []
        for prefill in self.prefills:
            reply = self._route(prefill, ALL_RANKS)
            where = f"{prefill['name']} ({prefill['address']}:{prefill['bootstrap_port']})"
            if not reply.ok or not isinstance(reply.body, dict):
                return Outcome(
                    False,
                    f"{where}: {reply.describe()}",
                    f"{where}: {reply.describe()}. A prefill rank registers within {REGISTRATION_S:g} s of its start "
                    "or never: look for 'register' and 'Server error' in its log (a bootstrap port that another "
                    "process holds is only logged), free the port or choose another, and restart the prefill.",
                )
            self._routes[prefill["name"]] = reply.body
            seen.append(f"{where}: " + _shown(reply.body, ROUTE_SHOWN))
            faults += self._route_faults(prefill, reply.body)
        faults += _disagreements(self._routes, ("page_size", "kv_cache_dtype", "kv_layout"), "registered")
        if faults:
            return Outcome(False, "; ".join(seen), " ".join(faults), final=True)
        return Outcome(True, "; ".join(seen))

    def _route_faults(self, prefill: Mapping[str, Any], route: Mapping[str, Any]) -> list[str]:
        name, faults = prefill["name"], []
        http_port = route.get("prefill_http_port")  # absent before sglang 0.5.20 or so
        if http_port is not None and int(http_port) != int(prefill["port"]):
            faults.append(
                f"Cross-wired: the bootstrap port {prefill['bootstrap_port']} of {name} answers for the server on port "
                f"{http_port}, not {prefill['port']}. Two prefills use one bootstrap port, or an old server still "
                "holds it: give each its own bootstrap_port and restart both."
            )
        info, fault = self._info(prefill)
        if fault:
            return [*faults, fault]
        if route.get("page_size") is not None and route["page_size"] != info.get("page_size"):
            faults.append(
                f"{name} registered page_size {route['page_size']}, but runs with {info.get('page_size')}: the "
                "registration is another server's. Restart the prefill."
            )
        wanted_tp = _attention_tp(info)
        if wanted_tp is not None and route.get("attn_tp_size") != wanted_tp:
            faults.append(
                f"{name} registered attn_tp_size {route.get('attn_tp_size')}, but runs with {wanted_tp}: the "
                "registration is another server's. Restart the prefill."
            )
        return faults

    # 3 -------------------------------------------------------------------------------------------------------------

    def ranks_reachable(self) -> Outcome:
        """Ask for the address of every prefill rank and open a TCP connection to it from here."""
        endpoints: list[tuple[str, tuple[str, int]]] = []
        faults = []
        for prefill in self.prefills:
            for ranks in _all_ranks(self._routes[prefill["name"]]):
                label = f"{prefill['name']} dp{ranks[0]} cp{ranks[1]} tp{ranks[2]} pp{ranks[3]}"
                reply = self._route(prefill, ranks)
                if not reply.ok or not isinstance(reply.body, dict):
                    faults.append(f"{label} has no address: {reply.describe()}. Restart {prefill['name']}.")
                    continue
                endpoint = (str(reply.body["rank_ip"]), int(reply.body["rank_port"]))
                endpoints.append((label, endpoint))
                faults += self._endpoint_faults(prefill, label, endpoint)
        doubled = _doubled(endpoints)
        if doubled:
            faults.append(
                f"{doubled} have one address: the ranks of one prefill have overwritten the other's. Give each "
                "prefill its own bootstrap_port and restart both."
            )
        seen = "; ".join(f"{label}: {ip}:{port}" for label, (ip, port) in endpoints)
        return Outcome(not faults, seen, " ".join(faults) or None)

    def _endpoint_faults(self, prefill: Mapping[str, Any], label: str, endpoint: tuple[str, int]) -> list[str]:
        ip, port = endpoint
        cure = f"Set SGLANG_HOST_IP in the env of {prefill['name']} to the address that decode reaches it at."
        wanted = (prefill.get("environment") or {}).get("SGLANG_HOST_IP")
        if wanted and _is_address(wanted) and _is_address(ip) and wanted != ip:
            return [f"{label} gives the address {ip}, not {wanted} of its SGLANG_HOST_IP: it is another server's."]
        stranger = self.stranger(prefill["name"], port)
        if stranger:
            return [
                f"{label} gives port {port}, which belongs to {stranger}: another prefill has registered on bootstrap "
                f"port {prefill['bootstrap_port']} and overwritten it. Stop that process and restart {prefill['name']}."
            ]
        remote = [decode["name"] for decode in self.decodes if decode.get("host") != prefill.get("host")]
        if remote and _is_loopback(ip):
            return [f"{label} gives the loopback address {ip}, which {remote[0]} on another host cannot reach. {cure}"]
        try:
            socket.create_connection((ip, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            return [f"{label} at {ip}:{port} cannot be reached from here: {error}. {cure} Check the firewall too."]
        return []

    # 4 -------------------------------------------------------------------------------------------------------------

    def roles_agree(self) -> Outcome:
        """/server_info of all servers: equal where KV pages must fit, and each what the plan says."""
        faults = []
        for server in self.servers:
            info, fault = self._info(server)
            faults += [fault] if fault else _plan_faults(server, info)
        keys = AGREED_KEYS + (PD_KEYS if self.prefills else ())
        faults += _disagreements(self._infos, keys, "runs")
        first = next(iter(self._infos.values()), {})
        seen = _shown(first, (*keys, "tp_size"))
        widths = {name: info.get("tp_size") for name, info in self._infos.items()}
        if len(set(widths.values())) > 1:
            # Allowed: attention with replicated KV (MLA) does not mind, others need the staging buffer.
            seen += f"; tp_size differs: {widths}"
        return Outcome(not faults, seen, " ".join(faults) or None, final=True)

    def _info(self, server: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        if server["name"] not in self._infos:
            reply = self._get(server, "/server_info")
            if not reply.ok or not isinstance(reply.body, dict):
                return {}, f"{server['name']}: /server_info: {reply.describe()}."
            self._infos[server["name"]] = reply.body
        return self._infos[server["name"]], None

    # 5 -------------------------------------------------------------------------------------------------------------

    def router_ready(self) -> Outcome:
        """The router's /readiness is 200 and /workers has each server with its role and bootstrap port."""
        assert self.router is not None
        url = self.router["url"].rstrip("/")
        readiness = http_json.get(url + "/readiness", REQUEST_TIMEOUT_S, self.api_key)
        workers = http_json.get(url + "/workers", REQUEST_TIMEOUT_S, self.api_key)
        seen = f"/readiness: {readiness.describe()}; /workers: "
        listed = listed_workers(workers.body)
        if not workers.ok or listed is None:
            return Outcome(
                False,
                seen + workers.describe(),
                f"The router at {url} does not list its workers: {workers.describe()}. Look at the router's log.",
            )
        seen += ", ".join(_shown_worker(worker) for worker in listed) or "none"
        faults = self._worker_faults(listed)
        if not faults and not readiness.ok:
            faults = [f"The router knows its servers, yet its /readiness says {readiness.describe()}."]
        if faults:
            cure = f"Waited {self.timeout_s:g} s. Compare the router's command line with the plan, and see its log."
            return Outcome(False, seen, " ".join([*faults, cure]))
        return Outcome(True, seen)

    def _worker_faults(self, listed: Sequence[Mapping[str, Any]]) -> list[str]:
        by_place = {_place(str(worker.get("url"))): worker for worker in listed}
        known = (self.router or {}).get("workers")
        names = {worker["name"] for worker in known} if known else None
        faults = []
        for server in self.servers:
            if names is not None and server["name"] not in names:
                continue
            worker = by_place.get(_place(server["url"]))
            if worker is None:
                faults.append(f"The router has no worker {server['name']} ({server['url']}).")
                continue
            wanted = WORKER_TYPES[server["role"]]
            if worker.get("worker_type") != wanted:
                faults.append(f"The router takes {server['name']} for {worker.get('worker_type')}, not {wanted}.")
            if server["role"] == PREFILL and worker.get("bootstrap_port") != server["bootstrap_port"]:
                faults.append(
                    f"The router sends bootstrap port {worker.get('bootstrap_port')} for {server['name']}, which "
                    f"listens on {server['bootstrap_port']}."
                )
            if worker.get("is_healthy") is False:
                faults.append(f"The router holds {server['name']} for unhealthy.")
        return faults

    # 6 -------------------------------------------------------------------------------------------------------------

    def generates(self) -> Outcome:
        """Generate through the router; with prefill and decode, KV bytes must have moved and no transfer failed.

        As many requests as the larger role has servers, so that a router that takes turns uses each once.
        """
        info, fault = self._info(self.servers[0])
        if fault:
            return Outcome(False, "", fault)
        page = int(info.get("page_size") or 1)
        before, faults = self._counters()
        if faults:
            return Outcome(False, "", " ".join(faults) + " Without metrics no KV transfer can be proven.", final=True)
        url = (self.router or self.servers[0])["url"].rstrip("/") + "/generate"
        for _ in range(max(1, len(self.prefills), len(self.decodes))):
            reply = http_json.post(url, generation_request(page), self.generation_timeout_s, self.api_key)
            outcome = judge_generation(reply, page)
            if not outcome.ok:
                # 503 is the router with its circuits open or its workers not found yet: both pass.
                return outcome._replace(final=reply.status != 503)
        if not self.prefills:
            return outcome
        return self._kv_moved(before, outcome.seen)

    def _counters(self) -> tuple[kv_metrics.Snapshot, list[str]]:
        workers = [*self.prefills, *self.decodes]
        return kv_metrics.read(workers, REQUEST_TIMEOUT_S, self.api_key)

    def _kv_moved(self, before: kv_metrics.Snapshot, seen: str) -> Outcome:
        """Prefill counts a transfer when it hears that it is complete, which may be after the answer."""
        settle = time.monotonic() + METRICS_SETTLE_S
        while True:
            after, faults = self._counters()
            moved = kv_metrics.movement(before, after)
            seen_now = f"{seen}; KV moved: {moved.bytes} bytes in {moved.requests} transfers, {moved.failed} failed"
            if moved.failed:
                return Outcome(False, seen_now, KV_FAILED.format(failed=moved.failed), final=True)
            if moved.bytes > 0:
                return Outcome(True, seen_now)
            if faults or time.monotonic() > settle:
                return Outcome(False, seen_now, " ".join(faults) or KV_STILL, final=True)
            time.sleep(min(self.poll_s, 0.1))

    # ---------------------------------------------------------------------------------------------------------------

    def _get(self, server: Mapping[str, Any], path: str, timeout_s: float = REQUEST_TIMEOUT_S) -> http_json.Reply:
        return http_json.get(server["url"].rstrip("/") + path, timeout_s, self.api_key)

    def _route(self, prefill: Mapping[str, Any], ranks: Sequence[int]) -> http_json.Reply:
        dp, cp, tp, pp = ranks
        return http_json.get(
            f"http://{_bracketed(prefill['address'])}:{prefill['bootstrap_port']}/route?prefill_dp_rank={dp}"
            f"&prefill_cp_rank={cp}&target_tp_rank={tp}&target_pp_rank={pp}",
            REQUEST_TIMEOUT_S,
        )


ROUTE_SHOWN = ("page_size", "kv_cache_dtype", "kv_layout", "attn_tp_size", "dp_size", "pp_size", "prefill_http_port")
KV_STILL = (
    "An answer came, but no KV cache moved: kv_transfer_total_mb of every prefill stands still. The request did not "
    "go through prefill and decode: check that the router's address is the one of this deployment, and that each "
    "server's disaggregation mode is what the plan says."
)
KV_FAILED = (
    "{failed} KV transfers failed. Look for KVTransferError in the logs of prefill and decode; run the NIXL/UCX probe."
)


def generation_request(page_size: int) -> dict[str, Any]:
    """A greedy request whose prompt is longer than one page and new each time, so that no cache can answer it.

    Each word is at least one token.
    """
    words = " ".join(f"{secrets.token_hex(2)}" for _ in range(page_size + 8))
    return {
        "text": f"Repeat after me: {words}",
        "sampling_params": {"temperature": 0, "max_new_tokens": GENERATED_TOKENS, "ignore_eos": True},
    }


def judge_generation(reply: http_json.Reply, page_size: int) -> Outcome:
    """Is this reply to `generation_request` a generation: 200, two tokens or more, some text, a prompt over a page?"""
    body = reply.body[0] if isinstance(reply.body, list) and reply.body else reply.body
    if not reply.ok or not isinstance(body, dict):
        cure = "See the logs of the router, prefill and decode, in this order."
        if reply.status == 503:
            cure = (
                "The router refuses although it calls itself ready: its circuit to a restarted server is open (it "
                "closes by itself, see --cb-timeout-duration-secs) or the server has failed again. " + cure
            )
        return Outcome(False, reply.describe(), f"A generation failed: {reply.describe()}. {cure}")
    meta = body.get("meta_info") or {}
    prompt_tokens, tokens = int(meta.get("prompt_tokens") or 0), int(meta.get("completion_tokens") or 0)
    text = str(body.get("text") or "")
    seen = f"{prompt_tokens} prompt tokens, {tokens} new in {reply.seconds:.2f} s: {text[:60]!r}"
    if prompt_tokens <= page_size:
        return Outcome(False, seen, f"The prompt had {prompt_tokens} tokens, not more than a page of {page_size}.")
    if tokens < 2:
        return Outcome(
            False,
            seen,
            f"{tokens} tokens came, so decode has not proven itself. See the log of decode: {reply.text[:200]}",
        )
    if not text.strip():
        return Outcome(
            False,
            seen,
            f"{tokens} tokens came without any text. The model emits only special tokens: is it the right one?",
        )
    return Outcome(True, seen)


def _shown_worker(worker: Mapping[str, Any]) -> str:
    port = worker.get("bootstrap_port")
    healthy = "" if worker.get("is_healthy", True) else " unhealthy"
    return f"{worker.get('worker_type')} {worker.get('url')}{f' {port}' if port else ''}{healthy}"


def _place(url: str) -> tuple[str | None, int | None]:
    """Host and port of an address, whatever its scheme, path or case."""
    parts = urlsplit(url if "//" in url else "//" + url)
    return parts.hostname, parts.port


def _plan_faults(server: Mapping[str, Any], info: Mapping[str, Any]) -> list[str]:
    """Is the process behind a server's address the one that the plan names?"""
    name, faults = server["name"], []
    wanted = {
        "disaggregation_mode": MODES[server["role"]],
        "tp_size": server.get("tp"),
        "model_path": server.get("model_path"),
    }
    for key, value in wanted.items():
        if value is not None and key in info and info[key] != value:
            faults.append(
                f"{name} runs with {key} {info[key]!r}, the plan says {value!r}: another or an older process answers "
                f"at {server['url']}. Deploy again."
            )
    return faults


def _disagreements(infos: Mapping[str, Mapping[str, Any]], keys: Iterable[str], verb: str) -> list[str]:
    faults = []
    for key in keys:
        values = {name: info.get(key) for name, info in infos.items() if key in info}
        if len({repr(value) for value in values.values()}) > 1:
            shown = ", ".join(f"{name} {verb} with {value!r}" for name, value in values.items())
            faults.append(
                f"{key} differs: {shown}. Give all servers the same (args of each server, or pd_server_args)."
            )
    return faults


def _attention_tp(info: Mapping[str, Any]) -> int | None:
    """Width of the attention TP group: TP over the attention's own data and context parallelism."""
    if not info.get("tp_size"):
        return None
    data = int(info.get("dp_size") or 1) if info.get("enable_dp_attention") else 1
    return int(info["tp_size"]) // data // int(info.get("attn_cp_size") or 1)


def _all_ranks(route: Mapping[str, Any]) -> list[tuple[int, int, int, int]]:
    sizes = [int(route.get(key) or 1) for key in ("dp_size", "attn_cp_size", "attn_tp_size", "pp_size")]
    dp, cp, tp, pp = sizes
    return [(d, c, t, p) for d in range(dp) for c in range(cp) for t in range(tp) for p in range(pp)]


def _doubled(items: Iterable[tuple[str, Any]]) -> str | None:
    """The names of the first items that share a value."""
    by_value: dict[Any, list[str]] = {}
    for name, value in items:
        by_value.setdefault(value, []).append(name)
    return next((" and ".join(names) for names in by_value.values() if len(names) > 1), None)


def _shown(values: Mapping[str, Any], keys: Iterable[str]) -> str:
    return ", ".join(f"{key} {values[key]}" for key in keys if values.get(key) is not None)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: str) -> bool:
    return _is_address(text) and ipaddress.ip_address(text).is_loopback
