# SPDX-License-Identifier: Apache-2.0
"""The module host_settings on a made-up box: what it changes, remembers, puts back, and refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from ansible_collections.pdlab.pdlab.plugins.modules import host_settings

from .conftest import GIB, ROOT, Box

GOVERNOR = "sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"
THP = "sys/kernel/mm/transparent_hugepage/enabled"
PAGES = "sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages"
# Every setting with what it asks for, how the box shows it, the value then and the value before.
SETTINGS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "numa_balancing": ({"numa_balancing": False}, "proc/sys/kernel/numa_balancing", "0", "1"),
    "transparent_hugepages": ({"transparent_hugepages": "never"}, THP, "never", "always [madvise] never"),
    "cpu_governor": ({"cpu_governor": "performance"}, GOVERNOR.format(11), "performance", "powersave"),
    "hugepages": ({"hugepages": [{"node": 1, "count": 512}]}, PAGES.format(1), "512", "0"),
    "sysctl": ({"sysctl": {"vm.swappiness": 1}}, "proc/sys/vm/swappiness", "1", "60"),
    "shm_gib": ({"shm_gib": 96}, "dev/shm.bytes", str(96 * GIB), str(64 * GIB)),
}
ALL: dict[str, Any] = {
    name: value for given, _path, _new, _old in SETTINGS.values() for name, value in given.items()
} | {"swap": False, "gpu_persistence": True, "limits": {"memlock_gib": "unlimited", "nofile": 524288}}


def as_kernel(text: str | None) -> str | None:
    """A value as the kernel would show it: a file tree keeps what was written instead of moving the brackets."""
    found = re.search(r"\[(\w+)\]", text or "")
    return found.group(1) if found else text


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_made_remembered_kept_and_put_back(box: Box, name: str) -> None:
    given, path, new, old = SETTINGS[name]
    first = box.set(**given)
    assert (first["changed"], first["failed"]) == (True, False), first
    assert box.read(path) == new
    assert box.memory
    assert box.set(**given)["changed"] is False
    undone = box.undo()
    assert (undone["changed"], undone["left_alone"]) == (True, [])
    assert as_kernel(box.read(path)) == as_kernel(old)
    assert box.memory is None
    assert box.undo()["changed"] is False


def test_everything_at_once_and_nothing_of_it_left_after_undo(box: Box) -> None:
    before = box.tree()
    result = box.set(gpus=(0, 3), **ALL)
    assert not result["failed"], result
    assert result["warnings"] == []
    assert box.set(gpus=(0, 3), **ALL)["changed"] is False
    assert not box.undo()["failed"]
    after = {name: as_kernel(text.strip()) for name, text in box.tree().items()}
    assert after == {name: as_kernel(text.strip()) for name, text in before.items()}


def test_a_setting_that_is_not_asked_for_is_not_touched(box: Box) -> None:
    before = box.tree()
    result = box.set(numa_balancing=False)
    changed = {name for name, text in box.tree().items() if before.get(name) != text}
    assert changed == {
        "proc/sys/kernel/numa_balancing", "etc/sysctl.d/pdlab.conf", "opt/pdlab/state/host.json",
    }  # fmt: skip
    assert [made["setting"] for made in result["changes"]] == ["numa_balancing", "/etc/sysctl.d/pdlab.conf"]
    assert box.calls == []


def test_check_mode_says_the_same_as_the_real_run_and_touches_nothing(box: Box) -> None:
    before = box.tree()
    said = box.set(check=True, gpus=(0,), **ALL)
    assert box.tree() == before
    assert box.calls == []
    done = box.set(gpus=(0,), **ALL)
    assert said["changes"] == done["changes"]
    assert said["diff"] == done["diff"]
    undo = box.undo(check=True)
    assert box.calls == [call for call in box.calls if "disable" not in call]
    assert box.memory
    assert undo["put_back"] == box.undo()["put_back"]


def test_the_diff_shows_values_and_whole_files(box: Box) -> None:
    _commands, live, file = box.set(check=True, cpu_governor="performance", numa_balancing=False)["diff"][:3]
    assert live["before"] == "numa_balancing: 1\ncpu_governor policy0, policy1, … policy11 (12): powersave\n"
    assert live["after"] == "numa_balancing: 0\ncpu_governor policy0, policy1, … policy11 (12): performance\n"
    assert file["after_header"] == "/etc/sysctl.d/pdlab.conf"
    assert "kernel.numa_balancing = 0\n" in file["after"]


def test_the_first_value_is_remembered_whatever_is_set_later(box: Box) -> None:
    for value in (10, 20, 30):
        assert box.set(sysctl={"vm.swappiness": value})["changed"] is True
    assert box.memory and box.memory["/proc/sys/vm/swappiness"] == {"was": "60", "set": "30"}
    box.undo()
    assert box.read("proc/sys/vm/swappiness") == "60"


def test_a_value_that_somebody_changed_since_is_left_alone_and_named(box: Box) -> None:
    box.set(numa_balancing=False, sysctl={"vm.swappiness": 1})
    box.write("proc/sys/vm/swappiness", "33\n")
    undone = box.undo()
    assert (undone["changed"], undone["failed"]) == (True, False)
    assert undone["left_alone"] == [{"setting": "sysctl vm.swappiness", "was": "60", "set": "1", "now": "33"}]
    assert "somebody changed it" in undone["warnings"][0]
    assert box.read("proc/sys/kernel/numa_balancing") == "1"
    assert box.read("proc/sys/vm/swappiness") == "33"
    assert box.read("etc/sysctl.d/pdlab.conf") is None
    assert box.undo()["left_alone"] == undone["left_alone"], "what is left alone stays remembered"
    assert box.undo(force=True)["changed"] is True
    assert box.read("proc/sys/vm/swappiness") == "60"
    assert box.memory is None


def test_what_was_left_alone_is_not_set_again_at_boot_by_another_setting(box: Box) -> None:
    box.set(sysctl={"vm.swappiness": 1})
    box.write("proc/sys/vm/swappiness", "33\n")
    box.undo()
    box.set(numa_balancing=False)
    assert "swappiness" not in str(box.read("etc/sysctl.d/pdlab.conf"))
    assert box.read("proc/sys/vm/swappiness") == "33"
    box.set(sysctl={"vm.swappiness": 1})
    assert "vm.swappiness = 1" in str(box.read("etc/sysctl.d/pdlab.conf"))
    assert box.memory and box.memory["/proc/sys/vm/swappiness"]["was"] == "60"


@pytest.mark.parametrize("path", ["etc/security/limits.d/pdlab.conf", "etc/systemd/system/pdlab-host.service"])
def test_a_file_of_ours_that_somebody_edited_is_left_alone(box: Box, path: str) -> None:
    box.set(limits={"nofile": 4096}, transparent_hugepages="never")
    box.write(path, str(box.read(path)) + "\n# mine\n")
    assert [entry["setting"] for entry in box.undo()["left_alone"]] == ["/" + path]
    assert "# mine" in str(box.read(path))


def test_a_file_that_was_there_before_comes_back(box: Box) -> None:
    box.write("etc/security/limits.d/pdlab.conf", "alice - nofile 99\n")
    box.set(limits={"nofile": 4096})
    assert "hard nofile 4096" in str(box.read("etc/security/limits.d/pdlab.conf"))
    box.undo()
    assert box.read("etc/security/limits.d/pdlab.conf") == "alice - nofile 99"


def test_a_value_that_came_back_by_itself_is_forgotten_and_a_thing_that_is_gone_named(box: Box) -> None:
    box.set(gpus=(0, 1), gpu_persistence=True, numa_balancing=False)
    box.write("proc/sys/kernel/numa_balancing", "1\n")
    box.write("gpus", "0, GPU-00, Enabled\n")
    undone = box.undo()
    assert [entry["setting"] for entry in undone["already_back"]] == ["numa_balancing"]
    assert [entry["setting"] for entry in undone["gone"]] == ["gpu_persistence GPU-11"]
    assert "0, GPU-00, Disabled" in str(box.read("gpus"))
    assert box.memory is None


def test_a_value_that_is_right_already_is_kept_at_boot_and_undo_leaves_it(box: Box) -> None:
    result = box.set(transparent_hugepages="madvise")
    assert [made["setting"] for made in result["changes"]] == [
        "/etc/tmpfiles.d/pdlab.conf", "/etc/systemd/system/pdlab-host.service",
    ]  # fmt: skip
    box.undo()
    assert box.read(THP) == "always [madvise] never"
    assert box.read("etc/tmpfiles.d/pdlab.conf") is None


def test_the_old_values_are_on_disk_before_the_first_one_is_changed(box: Box) -> None:
    box.write(ROOT + "/state", "a file in the way of the folder\n")
    result = box.set(numa_balancing=False, transparent_hugepages="never", swap=False)
    assert result["failed"]
    assert "Without a memory nothing is changed" in result["msg"]
    assert box.read("proc/sys/kernel/numa_balancing") == "1"
    assert box.calls == []


def test_what_the_kernel_refuses_is_said_and_the_rest_is_done_and_remembered(box: Box) -> None:
    box.program("swapoff", "echo 'swapoff: /dev/sda2: Cannot allocate memory' >&2; exit 255")
    result = box.set(swap=False, numa_balancing=False)
    assert result["failed"]
    assert "swap: `swapoff -a` failed (exit status 255): swapoff: /dev/sda2: Cannot allocate memory" in result["msg"]
    assert box.read("proc/sys/kernel/numa_balancing") == "0"
    assert box.memory and set(box.memory) == {"/proc/sys/kernel/numa_balancing", "/etc/sysctl.d/pdlab.conf"}
    assert box.read("etc/systemd/system/pdlab-host.service") is None, "what could not be set is not set at boot either"


def test_a_size_that_did_not_take_is_a_failure_and_undone_at_once(box: Box) -> None:
    box.program("mount", f'[ "$2" = "remount,size={64 * GIB}" ] || printf 1 > "$BOX/dev/shm.bytes"')
    result = box.set(shm_gib=96)
    assert "size of /dev/shm: it is" in result["msg"]
    assert box.calls[-1].startswith(f"mount -o remount,size={64 * GIB}")
    assert not box.memory


def test_without_root_nothing_is_done_and_each_thing_is_named(box: Box) -> None:
    box.root = False
    before = box.tree()
    result = box.run(
        settings={"numa_balancing": False, "cpu_governor": "performance", "transparent_hugepages": "madvise"},
        commands={"numactl": "numactl"},
    )
    assert (result["changed"], result["failed"]) == (False, False)
    assert box.tree() == before
    said = "\n".join(result["warnings"])
    assert "numa_balancing: 1 -> 0: not done, for want of root; become root" in said
    assert "(12): powersave -> performance: not done" in said
    assert "transparent_hugepages" not in said, "what is right already is not complained about"
    assert "sudo apt-get install numactl" in said
    assert result["missing"] == ["numactl"]


def test_undo_without_root_fails_when_there_is_something_to_undo(box: Box) -> None:
    box.set(numa_balancing=False)
    box.root = False
    assert "root alone" in box.undo()["msg"]
    assert box.read("proc/sys/kernel/numa_balancing") == "0"


def test_in_a_container_with_a_read_only_proc_sys_each_setting_is_explained(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    from .conftest import FakeMachine

    monkeypatch.setattr(FakeMachine, "can_write", lambda self, path: not path.startswith(("/proc/sys", "/sys")))
    result = box.set(numa_balancing=False, transparent_hugepages="never", sysctl={"vm.swappiness": 60})
    assert (result["changed"], result["failed"]) == (False, False)
    assert len(result["warnings"]) == 2
    assert "/proc/sys/kernel/numa_balancing is read-only here, as in a container" in result["warnings"][0]
    assert "sysctl -w kernel.numa_balancing=0" in result["warnings"][0]
    assert box.memory is None


def test_a_container_that_may_not_mount_is_told_what_starts_it_right(box: Box) -> None:
    box.write("proc/self/status", "CapEff:\t00000000a80425fb\n")
    result = box.set(shm_gib=96, swap=False)
    assert not result["changed"]
    assert "--shm-size=" in result["warnings"][0]
    assert "swapoff -a" in result["warnings"][1]


def test_a_container_that_may_not_raise_limits_is_not_given_any_that_a_login_would_not_get(box: Box) -> None:
    box.write("proc/self/status", "CapEff:\t00000000a80425fb\n")
    box.write("proc/self/limits", "Max open files            1024                 20000                files\n")
    assert box.set(limits={"nofile": 3000})["changed"] is True
    result = box.set(limits={"nofile": 30000})
    assert not result["changed"]
    assert "limits: not done, this container may not raise limits (no CAP_SYS_RESOURCE)" in result["warnings"][0]
    assert "hard nofile 3000\n" in str(box.read("etc/security/limits.d/pdlab.conf")) + "\n"


def test_without_systemd_values_are_set_and_said_to_be_fleeting(box: Box) -> None:
    (box.path / "run/systemd/system").rmdir()
    result = box.set(numa_balancing=False, limits={"nofile": 4096})
    assert box.read("proc/sys/kernel/numa_balancing") == "0"
    assert not (box.path / "etc/sysctl.d").exists()
    assert result["warnings"] == ["without systemd these settings last until the next reboot: numa_balancing"]
    assert box.set(numa_balancing=False, limits={"nofile": 4096})["warnings"] == []


def test_a_larger_dev_shm_is_left_as_it_is(box: Box) -> None:
    assert box.set(shm_gib=32)["changed"] is False
    assert box.read("dev/shm.bytes") == str(64 * GIB)


def test_swap_comes_back_with_its_devices_and_the_priorities_that_were_given(box: Box) -> None:
    box.set(swap=False)
    assert len((box.read("proc/swaps") or "").splitlines()) == 1
    box.undo()
    assert [call for call in box.calls if call.startswith("swapon")] == ["swapon /dev/sda2", "swapon -p 5 /swap file"]


def test_swap_that_does_not_fit_into_memory_is_not_switched_off(box: Box) -> None:
    box.write("proc/swaps", "Filename\n/dev/sda2 partition 200000000 150000000 -2\n")
    assert "does not fit into memory" in box.set(swap=False)["msg"]
    assert box.calls == []


def test_only_the_gpus_that_are_meant_change_their_persistence_mode(box: Box) -> None:
    box.set(gpus=(1, 2), gpu_persistence=True)
    assert (box.read("gpus") or "").splitlines() == [
        "0, GPU-00, Disabled", "1, GPU-11, Enabled", "2, GPU-22, Enabled", "3, GPU-33, Disabled",
    ]  # fmt: skip
    assert "ExecStart=-nvidia-smi -i GPU-11 -pm 1" in str(box.read("etc/systemd/system/pdlab-host.service"))


def test_a_box_without_a_driver_is_told_so(box: Box) -> None:
    (box.path / "usr/bin/nvidia-smi").unlink()
    (warning,) = box.set(gpus=(0,), gpu_persistence=True)["warnings"]
    assert warning.startswith("gpu_persistence: not done, nvidia-smi is not installed")


def test_a_virtual_machine_without_cpufreq_is_told_so(box: Box) -> None:
    for file in sorted((box.path / "sys/devices/system/cpu").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    (warning,) = box.set(cpu_governor="performance")["warnings"]
    assert "no cpufreq policy" in warning


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"cpu_governor": "turbo"}, "cpu_governor: 'turbo' is unknown to this machine; write performance or powersave"),
        ({"shm_gib": 500}, "shm_gib: 500 GiB is more than this machine's memory; write at most 128"),
        ({"hugepages": [{"node": 2, "count": 1}]}, "hugepages[0].node: there is no NUMA node 2; this machine has 0, 1"),
        ({"hugepages": [{"node": 0, "count": 40000}]}, "80000 MiB is more than the memory of node 0"),
        ({"hugepages": [{"node": 0, "count": 1}] * 2}, "hugepages[1]: node 0 is asked for twice"),
        ({"limits": {"nofile": 2000000}}, "no login would get it; write 1 to 1048576 (fs.nr_open)"),
        ({"limits": {"memlock_gib": "lots"}}, "limits.memlock_gib: 'lots' is no size"),
        ({"limits": {}}, "limits: is empty"),
        ({"limits": {"nofile": 99, "user": "a b"}}, "limits.user: 'a b' is no user"),
        ({"sysctl": {"vm.swapiness": 1}}, "sysctl.vm.swapiness: is none that pdlab sets; did you mean vm.swappiness?"),
        ({"sysctl": {"vm.swappiness": 201}}, "a whole number from 0 to 200"),
        ({"swap": True}, "swap: pdlab does not switch swap on"),
        ({"gpu_persistence": True}, "gpu_persistence: there is no GPU 9; this machine has 0, 1, 2, 3"),
    ],
)
def test_what_makes_no_sense_on_this_box_is_refused_before_anything_is_touched(
    box: Box, given: dict[str, Any], wanted: str
) -> None:
    before = box.tree()
    result = box.set(gpus=(9,), numa_balancing=False, **given)
    assert result["failed"]
    assert wanted in result["msg"]
    assert box.tree() == before


def test_all_faults_are_named_at_once(box: Box) -> None:
    result = box.set(cpu_governor="turbo", shm_gib=500, swap=True)
    assert len(result["msg"].splitlines()) == 4


def test_a_higher_nofile_is_possible_together_with_a_higher_nr_open(box: Box) -> None:
    result = box.set(limits={"nofile": 2000000}, sysctl={"fs.nr_open": 2000000})
    assert not result["failed"], result


def test_a_second_pdlab_root_is_refused_so_that_its_old_values_are_never_the_first_ones(box: Box) -> None:
    box.set(numa_balancing=False)
    result = box.run(root="/srv/other", settings={"sysctl": {"vm.swappiness": 1}})
    assert "remembers the old values in /opt/pdlab/state/host.json" in result["msg"]
    assert box.read("proc/sys/vm/swappiness") == "60"
    assert not box.run(root="/srv/other", commands={})["failed"], "without settings it has no business here"


def test_a_lost_memory_is_said(box: Box) -> None:
    box.set(numa_balancing=False)
    (box.path / "opt/pdlab/state/host.json").unlink()
    assert "the old values of what is set already are lost" in box.set(numa_balancing=False)["warnings"][0]
    box.undo()
    assert box.read("etc/sysctl.d/pdlab.conf") is None, "pdlab's own file is no old value"


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', '{"version": 9, "settings": {}, "packages": []}'])
def test_a_memory_that_cannot_be_understood_stops_everything(box: Box, text: str) -> None:
    box.write(ROOT + "/state/host.json", text)
    for result in (box.set(numa_balancing=False), box.undo()):
        assert result["failed"]
        assert "/opt/pdlab/state/host.json" in result["msg"]
    assert box.read("proc/sys/kernel/numa_balancing") == "1"
    assert box.read(ROOT + "/state/host.json") == text


def test_a_missing_package_is_installed_named_at_undo_and_stays(box: Box) -> None:
    checked = box.run(check=True, commands={"numactl": "numactl"})
    assert (checked["changed"], box.calls) == (True, [])
    done = box.run(commands={"numactl": "numactl"})
    assert (done["changed"], done["missing"]) == (True, [])
    assert "install --no-install-recommends numactl" in box.calls[-1]
    assert box.run(commands={"numactl": "numactl"})["changed"] is False
    undone = box.undo()
    assert (undone["changed"], undone["packages"]) == (False, ["numactl"])
    assert "sudo apt-get remove numactl" in undone["warnings"][0]
    assert box.memory is None
    assert box.undo()["packages"] == []


def test_a_package_that_cannot_be_installed_says_why(box: Box) -> None:
    box.program("apt-get", "echo 'E: Unable to locate package numactl' >&2; exit 100")
    result = box.run(commands={"numactl": "numactl"})
    assert "apt-get could not install numactl" in result["msg"]
    assert "Unable to locate package" in result["msg"]


def test_the_documentation_and_the_arguments_say_the_same() -> None:
    def compare(documented: dict[str, Any], spec: dict[str, Any]) -> None:
        assert set(documented) == set(spec)
        for name, option in spec.items():
            for key in ("type", "choices", "default", "required", "elements"):
                assert documented[name].get(key) == option.get(key), f"{name}.{key}"
            compare(documented[name].get("suboptions", {}), option.get("options", {}))

    compare(yaml.safe_load(host_settings.DOCUMENTATION)["options"], host_settings.ARGUMENTS)
    assert len(yaml.safe_load(host_settings.EXAMPLES)) == 3
    assert {"changes", "put_back", "left_alone", "memory"} <= set(yaml.safe_load(host_settings.RETURN))


def test_the_memory_is_plain_json_that_a_person_can_read(box: Box) -> None:
    box.set(numa_balancing=False)
    assert json.loads(str(box.read(ROOT + "/state/host.json")))["settings"]["/proc/sys/kernel/numa_balancing"] == {
        "was": "1",
        "set": "0",
    }
