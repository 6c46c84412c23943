#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Test hosts for pdlab: N containers with a real systemd as PID 1, each with an address of its own and an sshd.
#
#   testbed.sh up N          bring up hosts 1..N and wait until each answers on its ssh port
#   testbed.sh run I CMD…    run a command on host I, as root, over ssh
#   testbed.sh address I     print the address of host I
#   testbed.sh key           print the path of the private key that opens all of them
#   testbed.sh leftovers     list what a bed of this name has on this machine; nothing when there is none
#   testbed.sh down          stop all hosts and remove every trace of them, also of a bed that crashed
#
# Each host's disk is a copy-on-write layer in memory over this machine's own root, thrown away at the end: /usr and
# whatever else is installed here can be used there. /root is empty there, and no service of this machine runs there.
# `reboot` inside a host works.
#
# May be set:
#   PDLAB_TESTBED        name of the bed, up to 8 letters and digits (pdlab); beds of different names stand side by side
#   PDLAB_TESTBED_NET    first three bytes of the addresses; the default follows from the name
#   PDLAB_TESTBED_OWNER  PID of the process that the bed is for: when it ends, the bed goes down by itself; should that
#                        fail, the next `up` of any bed takes it down
#   PDLAB_TESTBED_BIND   folders that all hosts see, as SOURCE:PLACE, separated by blanks
#   PDLAB_TESTBED_NODES  made-up NUMA nodes (2); only node 0 can really be bound to
#   PDLAB_TESTBED_BASE   another root than this machine's
set -euo pipefail

bed=${PDLAB_TESTBED:-pdlab}
# One bed, one name everywhere: cgroups, network namespaces and mounts are found again by it.
prefix=$bed-host
state=/run/$bed-testbed
bridge=${bed}br
pair=${bed}v
place=$(printf %s "$bed" | cksum | cut -d' ' -f1)
# One of 16000 networks: beds that stand side by side hardly ever share one.
net=${PDLAB_TESTBED_NET:-10.$((64 + place / 250 % 64)).$((place % 250))}
nodes=${PDLAB_TESTBED_NODES:-2}
base=${PDLAB_TESTBED_BASE:-/}
read -ra binds <<<"${PDLAB_TESTBED_BIND:-}"
# systemd-nspawn ends with this code when the container asked for a reboot and nobody is registered to do it.
rebooting=133

die() {
  echo "testbed.sh: $*" >&2
  exit 1
}

check_requirements() {
  local missing=() pair
  [ "$(id -u)" = 0 ] || die "needs root: it mounts, makes network namespaces and boots containers"
  [[ $bed =~ ^[a-z0-9]{1,8}$ ]] || die "PDLAB_TESTBED is '$bed'; use up to 8 lower-case letters and digits"
  for pair in systemd-nspawn:systemd-container sshd:openssh-server ssh-keygen:openssh-client ip:iproute2 dbus-daemon:dbus; do
    command -v "${pair%%:*}" >/dev/null || [ -x "/usr/sbin/${pair%%:*}" ] || missing+=("${pair##*:}")
  done
  [ ${#missing[@]} = 0 ] || die "needs these packages: ${missing[*]} (apt-get install ${missing[*]})"
}

# The top of each cgroup hierarchy that systemd uses.
hierarchies() {
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    echo /sys/fs/cgroup
  else
    for name in systemd unified; do
      if [ -d "/sys/fs/cgroup/$name" ]; then echo "/sys/fs/cgroup/$name"; fi
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

# Opaque: without what this machine has in that folder.
opaque() {
  mkdir -p "$1"
  python3 -c 'import os, sys; os.setxattr(sys.argv[1], "trusted.overlay.opaque", b"y")' "$1"
}

make_disk() {
  local number=$1 dir=$state/$1
  local layer=$dir/layer
  mkdir -p "$layer/etc/systemd" "$dir/work" "$dir/disk"
  # /root: this machine's shell start-up files and tools are nobody's business.
  opaque "$layer/root"
  # Its own units neither: whatever else it serves would be started a second time.
  opaque "$layer/etc/systemd/system"
  mkdir -p "$layer/root/.ssh" "$layer/etc/systemd/system/multi-user.target.wants"
  ln -s /lib/systemd/system/ssh.service "$layer/etc/systemd/system/multi-user.target.wants/ssh.service"
  ln -s /lib/systemd/system/multi-user.target "$layer/etc/systemd/system/default.target"
  chmod 755 "$layer" "$layer/etc" "$layer/etc/systemd"
  chmod 700 "$layer/root" "$layer/root/.ssh"
  install -m 600 "$state/key.pub" "$layer/root/.ssh/authorized_keys"
  echo "$prefix$number" >"$layer/etc/hostname"
  : >"$layer/etc/machine-id"
  : >"$layer/etc/fstab"
  mount -t overlay "$prefix$number" -o "lowerdir=$base,upperdir=$layer,workdir=$dir/work" "$dir/disk"
}

make_network() {
  local number=$1 name=$prefix$1
  ip netns add "$name"
  ip link add "$pair$number" type veth peer name eth0 netns "$name"
  ip link set "$pair$number" master "$bridge" up
  ip -n "$name" addr add "$(address "$number")/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" link set lo up
}

# Runs one host until it is told to stop, booting it again whenever it asks for that.
keep_host() {
  local number=$1 name=$prefix$1 container="" code top ending="" shared=() folder
  # Hosts that share a cgroup would stop each other's units.
  for top in $(hierarchies); do
    mkdir -p "$top/$name"
    echo "$BASHPID" >"$top/$name/cgroup.procs"
  done
  for folder in "${binds[@]}"; do shared+=("--bind=$folder"); done
  trap 'ending=yes; [ -z "$container" ] || kill "$container" 2>/dev/null || true' TERM
  while :; do
    systemd-nspawn --quiet --boot --directory="$state/$number/disk" --machine="$name" --hostname="$name" \
      --console=pipe --register=no --keep-unit --network-namespace-path="/run/netns/$name" --resolv-conf=off \
      --timezone=off --link-journal=no --bind-ro="$state/numa:/sys/devices/system/node" "${shared[@]}" &
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

# When a process began, in clock ticks: together with its PID a name that is never given twice.
began() {
  sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

owner_lives() { # owner_lives STATE
  local pid ticks
  read -r pid ticks <"$1/owner" 2>/dev/null || return 1
  [ "$(began "$pid")" = "$ticks" ]
}

watch_owner() {
  while owner_lives "$state"; do sleep 1; done
  [ ! -e "$state/owner" ] || down
}

# Beds of any name whose owner is gone and whose watcher was killed with it.
sweep() {
  local other name
  for other in /run/*-testbed; do
    name=${other#/run/}
    if [ -e "$other/owner" ] && ! owner_lives "$other"; then PDLAB_TESTBED=${name%-testbed} "$0" down 9<&-; fi
  done
}

up() {
  local count=${1:?how many hosts?} number
  check_requirements
  # One `up` at a time, so that none takes another's half-made bed for what a crash left.
  exec 9</run/lock
  flock 9
  sweep
  [ ! -e "$state/ready" ] || die "the bed $bed is up already (testbed.sh down)"
  down
  trap 'down' EXIT
  mkdir -p "$state"
  mount -t tmpfs -o size=2g,mode=700 "$bed-testbed" "$state"
  if [ -n "${PDLAB_TESTBED_OWNER:-}" ]; then
    echo "$PDLAB_TESTBED_OWNER $(began "$PDLAB_TESTBED_OWNER")" >"$state/owner"
    owner_lives "$state" || die "PDLAB_TESTBED_OWNER: there is no process $PDLAB_TESTBED_OWNER"
    (exec setsid "$0" watch) </dev/null >/dev/null 2>&1 9<&- &
  fi
  ssh-keygen -q -t ed25519 -N '' -f "$state/key"
  make_numa_tree
  ip link add "$bridge" type bridge
  ip addr add "$net.1/24" dev "$bridge"
  ip link set "$bridge" up
  for ((number = 1; number <= count; number++)); do
    make_disk "$number"
    make_network "$number"
    (exec setsid "$0" keep "$number") </dev/null >>"$state/$number/console.log" 2>&1 9<&- &
  done
  for ((number = 1; number <= count; number++)); do await_ssh "$number"; done
  : >"$state/ready"
  trap - EXIT
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

# What there is of this bed, from the kernel's own tables: a bed that crashed may have lost its files.
cgroups() {
  local top
  for top in $(hierarchies); do find "$top" -maxdepth 1 -type d -name "$prefix[0-9]*"; done
}
namespaces() { ip netns list 2>/dev/null | cut -d' ' -f1 | grep "^$prefix[0-9]" || true; }
links() { ip -o link show 2>/dev/null | sed 's/^[0-9]*: //; s/[@:].*//' | grep -E "^($bridge|$pair[0-9]+)$" || true; }
mounts() { awk -v top="$state" '$2 == top || index($2, top "/") == 1 {print $2}' /proc/self/mounts | sort -r; }

leftovers() {
  cgroups
  namespaces
  links
  mounts
  if [ -e "$state" ]; then echo "$state"; fi
}

end_processes() { # end_processes SIGNAL: whatever is in the hosts' own cgroups belongs to the hosts
  local group
  for group in $(cgroups); do
    find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u | xargs -r kill "-$1" 2>/dev/null || true
  done
}

empty() {
  local group
  for group in $(cgroups); do
    [ -z "$(find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null)" ] || return 1
  done
}

keepers() {
  local group
  # The first process of a host's own cgroup, not of one below it, is its keeper or its container.
  for group in $(cgroups); do cat "$group/cgroup.procs" 2>/dev/null; done | sort -u
}

down() {
  local try name
  trap - EXIT
  [ "$(id -u)" = 0 ] || die "needs root"
  rm -f "$state/owner" "$state/ready"
  if [ -n "$(cgroups)" ]; then
    keepers | xargs -r kill -TERM 2>/dev/null || true
    for ((try = 0; try < 50; try++)); do
      empty && break
      sleep 0.1
    done
    for ((try = 0; try < 50; try++)); do
      empty && break
      end_processes KILL
      sleep 0.1
    done
  fi
  for name in $(cgroups); do
    for ((try = 0; try < 20; try++)); do
      find "$name" -depth -type d -exec rmdir {} + 2>/dev/null && break
      sleep 0.1
    done
  done
  # The pairs before the namespaces: a namespace goes away some time after its name, and its devices with it.
  for name in $(links); do ip link del "$name" 2>/dev/null || true; done
  for name in $(namespaces); do ip netns del "$name" 2>/dev/null || true; done
  for name in $(mounts); do umount --lazy "$name" 2>/dev/null || true; done
  if [ -d "$state" ]; then rmdir "$state" 2>/dev/null || true; fi
  [ -z "$(leftovers)" ] || die "could not remove: $(leftovers | tr '\n' ' ')"
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
up | down | run | address | leftovers) "$@" ;;
key) echo "$state/key" ;;
# The two that `up` leaves running, each in a session of its own.
keep) keep_host "$2" ;;
watch) watch_owner ;;
*) die "say: up N, run I COMMAND…, address I, key, leftovers, or down" ;;
esac
