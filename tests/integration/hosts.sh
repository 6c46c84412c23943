#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Test hosts for pdlab: N containers with a real systemd as PID 1, each with an address of its own and an sshd.
#
#   hosts.sh up N          bring up hosts 1..N and wait until each answers on its ssh port
#   hosts.sh run I CMD…    run a command on host I, as root, over ssh
#   hosts.sh address I     print the address of host I
#   hosts.sh down          stop all hosts and remove every trace of them
#
# Each host's disk is a copy-on-write layer in memory over this machine's own root, thrown away at the end: /usr and
# whatever else is installed here can be used there; /root is empty there. `reboot` inside a host works.
# PDLAB_HOSTS_DIR (state), PDLAB_HOSTS_NET (first three bytes of the addresses), PDLAB_HOSTS_NODES (made-up NUMA
# nodes; only node 0 can really be bound to) and PDLAB_HOSTS_BASE (another root than this machine's) may be set.
set -euo pipefail

state=${PDLAB_HOSTS_DIR:-/run/pdlab-hosts}
net=${PDLAB_HOSTS_NET:-10.79.0}
nodes=${PDLAB_HOSTS_NODES:-2}
base=${PDLAB_HOSTS_BASE:-/}
bridge=pdlab0
prefix=pdlabhost
# This machine's own services have no business in a copy of it.
unwanted=(postgresql.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer)
# systemd-nspawn ends with this code when the container asked for a reboot and nobody is registered to do it.
rebooting=133

die() {
  echo "hosts.sh: $*" >&2
  exit 1
}

check_requirements() {
  local missing=() pair
  [ "$(id -u)" = 0 ] || die "needs root: it mounts, makes network namespaces and boots containers"
  for pair in systemd-nspawn:systemd-container sshd:openssh-server ssh-keygen:openssh-client ip:iproute2 dbus-daemon:dbus; do
    command -v "${pair%%:*}" >/dev/null || [ -x "/usr/sbin/${pair%%:*}" ] || missing+=("${pair##*:}")
  done
  [ ${#missing[@]} = 0 ] || die "needs these packages: ${missing[*]} (apt-get install ${missing[*]})"
}

# The cgroup of a host in each hierarchy that systemd uses. Hosts that share one would stop each other's units.
cgroups_of() {
  local top=/sys/fs/cgroup
  if [ -f $top/cgroup.controllers ]; then
    echo "$top/$prefix.$1"
  else
    for hierarchy in systemd unified; do
      if [ -d "$top/$hierarchy" ]; then echo "$top/$hierarchy/$prefix.$1"; fi
    done
  fi
}

make_numa_tree() {
  local last=$((nodes - 1)) file node other
  mkdir -p "$state/numa"
  for file in online possible has_cpu has_memory has_normal_memory; do echo "0-$last" >"$state/numa/$file"; done
  for ((node = 0; node < nodes; node++)); do
    mkdir -p "$state/numa/node$node"
    echo "$node" >"$state/numa/node$node/cpulist"
    printf '%08x\n' $((1 << node)) >"$state/numa/node$node/cpumap"
    printf 'Node %d %s kB\n' "$node" "MemTotal: 12000000" "$node" "MemFree: 6000000" >"$state/numa/node$node/meminfo"
    for ((other = 0; other < nodes; other++)); do
      if [ "$other" = "$node" ]; then echo -n "10 "; else echo -n "20 "; fi
    done >"$state/numa/node$node/distance"
  done
}

make_disk() {
  local number=$1 dir=$state/$1 unit
  local layer=$dir/layer
  mkdir -p "$layer/etc/systemd/system" "$layer/root/.ssh" "$dir/work" "$dir/disk"
  chmod 755 "$layer" "$layer/etc"
  chmod 700 "$layer/root" "$layer/root/.ssh"
  # Opaque: without this machine's /root, whose shell start-up files and tools are nobody's business.
  python3 -c 'import os, sys; os.setxattr(sys.argv[1], "trusted.overlay.opaque", b"y")' "$layer/root"
  install -m 600 "$state/key.pub" "$layer/root/.ssh/authorized_keys"
  echo "$prefix$number" >"$layer/etc/hostname"
  : >"$layer/etc/machine-id"
  : >"$layer/etc/fstab"
  for unit in "${unwanted[@]}"; do ln -s /dev/null "$layer/etc/systemd/system/$unit"; done
  mount -t overlay "$prefix$number" -o "lowerdir=$base,upperdir=$layer,workdir=$dir/work" "$dir/disk"
}

make_network() {
  local number=$1 name=$prefix$1
  ip netns add "$name"
  ip link add "pdlabv$number" type veth peer name eth0 netns "$name"
  ip link set "pdlabv$number" master "$bridge" up
  ip -n "$name" addr add "$net.$((10 + number))/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
}

# Runs one host until it is told to stop, booting it again whenever it asks for that.
keep_host() {
  local number=$1 name=$prefix$1 container="" code group ending=""
  for group in $(cgroups_of "$number"); do
    mkdir -p "$group"
    echo "$BASHPID" >"$group/cgroup.procs"
  done
  trap 'ending=yes; [ -z "$container" ] || kill "$container" 2>/dev/null || true' TERM
  while :; do
    systemd-nspawn --quiet --boot --directory="$state/$number/disk" --machine="$name" --hostname="$name" \
      --console=pipe --register=no --keep-unit --network-namespace-path="/run/netns/$name" --resolv-conf=off \
      --timezone=off --link-journal=no --bind-ro="$state/numa:/sys/devices/system/node" &
    container=$!
    code=0
    # A signal ends `wait` early, so wait until the container is really gone.
    while kill -0 "$container" 2>/dev/null; do
      code=0
      wait "$container" || code=$?
    done
    [ -z "$ending" ] && [ "$code" = $rebooting ] || break
  done
}

up() {
  local count=${1:?how many hosts?} number
  check_requirements
  [ ! -e "$state" ] || die "$state exists: hosts are up already, or were not taken down (hosts.sh down)"
  trap 'down' ERR
  mkdir -p "$state"
  mount -t tmpfs -o size=2g,mode=700 pdlab-hosts "$state"
  ssh-keygen -q -t ed25519 -N '' -f "$state/key"
  make_numa_tree
  ip link add "$bridge" type bridge
  ip addr add "$net.1/24" dev "$bridge"
  ip link set "$bridge" up
  for ((number = 1; number <= count; number++)); do
    make_disk "$number"
    make_network "$number"
    (keep_host "$number") </dev/null >>"$state/$number/console.log" 2>&1 &
    echo $! >"$state/$number/keeper"
  done
  for ((number = 1; number <= count; number++)); do await_ssh "$number"; done
  trap - ERR
}

await_ssh() {
  local try
  for ((try = 0; try < 300; try++)); do
    if (exec 3<>"/dev/tcp/$(address "$1")/22") 2>/dev/null; then return; fi
    sleep 0.1
  done
  tail -n 20 "$state/$1/console.log" >&2
  die "host $1 did not answer on its ssh port within 30 s; its console is above"
}

down() {
  local dir number group try keeper
  trap - ERR
  for keeper in "$state"/*/keeper; do
    if [ -f "$keeper" ]; then kill "$(cat "$keeper")" 2>/dev/null || true; fi
  done
  for dir in "$state"/[0-9]*; do
    [ -d "$dir" ] || continue
    number=${dir##*/}
    if [ -f "$dir/keeper" ]; then
      for ((try = 0; try < 100; try++)); do
        kill -0 "$(cat "$dir/keeper")" 2>/dev/null || break
        sleep 0.1
      done
      kill -KILL "$(cat "$dir/keeper")" 2>/dev/null || true
    fi
    for group in $(cgroups_of "$number"); do
      [ -d "$group" ] || continue
      # Whatever is left in the host's own cgroups belongs to the host.
      find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill -KILL 2>/dev/null || true
      for ((try = 0; try < 20; try++)); do
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
        sleep 0.1
      done
    done
    umount --lazy "$dir/disk" 2>/dev/null || true
    # The pair first: a namespace goes away some time after its name, and its devices with it.
    ip link del "pdlabv$number" 2>/dev/null || true
    ip netns del "$prefix$number" 2>/dev/null || true
  done
  ip link del "$bridge" 2>/dev/null || true
  umount --lazy "$state" 2>/dev/null || true
  rmdir "$state" 2>/dev/null || true
}

address() {
  echo "$net.$((10 + $1))"
}

run() {
  local number=$1
  shift
  ssh -q -i "$state/key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "root@$(address "$number")" "$@"
}

case ${1:-} in
up | down | run | address) "$@" ;;
*) die "say: up N, run I COMMAND…, address I, or down" ;;
esac
