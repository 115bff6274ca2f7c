"""Runs a map on a Slurm cluster of one controller and three nodes on this machine, kills a node and ten runs in the middle,
and checks that every row finishes exactly once.

    python3 tests/engines/slurm.py LEGWORK

Every row's only tool call reports to a server in this process, so a call that is made twice is noticed. All daemons keep
their state in a temporary folder and listen on free ports of 127.0.0.1. They are stopped at the end.
"""

import collections
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROWS = 60
SHARDS = 20
KILLED_RUNS = 10
NODES = ["n1", "n2", "n3"]
DEADLINE = time.monotonic() + 170

CONFIGURATION = """\
ClusterName=legwork
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
# How long a requeued job waits until it starts again.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=0
SlurmdTimeout=10
KillWait=5
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,default_queue_depth=10000,bf_interval=1
{nodes}
PartitionName=main Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP
"""

JOB = """\
name: report
model: anthropic/claude-haiku-5-5
inputs:
  item: { type: integer, description: What to report }
network: open
parent:
  prompt: Report item {{ inputs.item }}.
  tools: [bash]
"""

# The name of a row's workspace is the row's id.
SCRIPT = """\
parent:
  - calls:
      - tool: bash
        input: { command: 'exec 3<>/dev/tcp/127.0.0.1/PORT && echo "$PWD" >&3 && exec 3>&- && sleep 2' }
  - text: Reported.
"""


def fail(message):
    raise SystemExit(f"failed: {message}")


def wait_for(what, condition, seconds):
    """Waits until a condition holds, and returns its value."""
    end = min(time.monotonic() + seconds, DEADLINE)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            fail(f"{what}: not within {seconds} seconds")
        time.sleep(0.1)


class Effects(threading.Thread):
    """A server that notes every line that is sent to it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        self.lines = []

    def run(self):
        while True:
            connection, _ = self.socket.accept()
            with connection, connection.makefile("rb") as reader:
                connection.settimeout(10)
                try:
                    line = reader.readline(10_000).decode().strip()
                    # A command that is killed between its connection and its line has had no effect.
                    if line:
                        self.lines.append(line)
                except OSError as error:
                    self.lines.append(f"unreadable: {error}")


class Cluster:
    """Slurm's daemons, with all of their state in one folder."""

    def __init__(self, folder):
        self.folder = folder
        self.configuration = folder / "slurm.conf"
        self.daemons = {}

    def start(self):
        munge = self.folder / "munge"
        munge.mkdir(mode=0o755)
        for name in ["controller", *NODES]:
            (self.folder / name).mkdir()
        key = munge / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        host = subprocess.run(["hostname", "-s"], check=True, capture_output=True, text=True).stdout.strip()
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 State=UNKNOWN"
            for name, port in zip(NODES, ports[1:])
        )
        user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
        self.configuration.write_text(
            CONFIGURATION.format(host=host, folder=self.folder, user=user, ports=ports, nodes=nodes)
        )
        files = [f"--{name}-file={munge}/{name}" for name in ["key", "pid", "log", "seed"]]
        self.daemon("munged", ["munged", "--foreground", f"--socket={munge}/socket", *files])
        wait_for("munged", (munge / "socket").exists, 20)
        self.daemon("slurmctld", ["slurmctld", "-D"])
        for name in NODES:
            self.daemon(name, ["slurmd", "-D", "-N", name])
        wait_for("three idle nodes", lambda: self.states() == ["idle"] * 3, 40)

    def daemon(self, name, command):
        output = open(self.folder / f"{name}.out", "wb")
        self.daemons[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment()
        )

    def environment(self, **more):
        kept = {name: os.environ[name] for name in ["PATH"]}
        return {**kept, "SLURM_CONF": str(self.configuration), **more}

    def run(self, *command):
        """The output of one of Slurm's commands; empty if it failed."""
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=30)
        return done.stdout if done.returncode == 0 else ""

    def states(self):
        return self.run("sinfo", "--noheader", "--Node", "--format=%T").split()

    def processes(self):
        """All processes of the cluster and its jobs, by id, with their environment.

        Only root can read that of legwork, which hides its own. It is that of the process that started it.
        """
        marker = f"SLURM_CONF={self.configuration}"
        found, hidden = {}, []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                if marker in variables:
                    found[int(entry.name)] = variables
            except PermissionError:
                hidden.append(int(entry.name))
            except OSError:
                continue
        while True:
            begun = {pid: found[stat(pid)] for pid in hidden if pid not in found and stat(pid) in found}
            if not begun:
                return found
            found.update(begun)

    def stop(self):
        try:
            self.run("scancel", "--user", str(os.getuid()))
            time.sleep(1)
        except (OSError, subprocess.SubprocessError):
            pass
        # What a killed node left behind is in nobody's list, so look until nothing is found.
        for _ in range(20):
            pids = list(self.processes())
            for pid in pids:
                kill(pid)
            for daemon in self.daemons.values():
                if daemon.poll() is None:
                    daemon.kill()
                daemon.wait(timeout=10)
            if not pids:
                break
            time.sleep(0.2)

    def logs(self):
        for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out"), *self.folder.glob("work/*.log")]):
            lines = path.read_text(errors="replace").splitlines()
            print(f"--- {path.name}", *lines[-15:], sep="\n", file=sys.stderr)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def stat(pid):
    """The id of a process's parent, or None if it has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rsplit(")", 1)[1].split()[:2]
    return None if state == "Z" else int(parent)


def is_map(pid, program):
    """Whether a process of the cluster is a map. Only root can read which program it executes."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.path.basename(words[0]) == os.path.basename(os.fsencode(program)) and words[1:2] == [b"map"]


def kill_node(cluster, name):
    """Kills a node: its daemon, what that started for each task, and the tasks."""
    cluster.daemons[name].kill()
    processes = cluster.processes()
    tasks = [pid for pid, variables in processes.items() if f"SLURMD_NODENAME={name}" in variables]
    # The parent of a task's script is the process that supervises the task.
    supervisors = {stat(pid) for pid in tasks} & set(processes)
    victims = supervisors.union(tasks) - {os.getpid(), *(daemon.pid for daemon in cluster.daemons.values())}
    return sum(kill(pid) for pid in sorted(victims))


def kill_runs(cluster, program, count):
    """Kills runs on the nodes that are left, one after the other."""
    killed = set()

    def kill_one():
        running = [pid for pid in cluster.processes() if pid not in killed and stat(pid) and is_map(pid, program)]
        if running and kill(running[len(killed) % len(running)]):
            killed.add(running[len(killed) % len(running)])
        return len(killed) >= count

    def step():
        done = kill_one()
        time.sleep(0.3)
        return done

    wait_for(f"{count} killed runs", step, 60)


def row_of(line, ids):
    """The row whose workspace a path is."""
    found = [part for part in pathlib.PurePath(line).parts if part in ids]
    if len(found) != 1:
        fail(f"a report from no row: {line}")
    return found[0]


def finished_runs(record):
    """How often a record's run was finished for good."""
    events = [json.loads(line) for line in (record / "events.jsonl").read_text().splitlines()]
    return sum(event.get("type") == "run_finished" for event in events)


def run(cluster, program):
    effects = Effects()
    effects.start()
    cluster.start()
    print("the cluster has three idle nodes")

    work = cluster.folder / "work"
    (work / "jobs").mkdir(parents=True)
    (work / "bin").mkdir()
    (work / "home").mkdir()
    (work / "bin/legwork").symlink_to(program)
    (work / "jobs/report.yaml").write_text(JOB)
    (work / "jobs/report.script.yaml").write_text(SCRIPT.replace("PORT", str(effects.port)))
    ids = {f"row-{number:02}" for number in range(ROWS)}
    rows = "".join(f"{row},{number}\n" for number, row in enumerate(sorted(ids)))
    (work / "rows.csv").write_text("id,item\n" + rows)
    environment = cluster.environment(
        PATH=f"{work}/bin:{os.environ['PATH']}", HOME=f"{work}/home", LEGWORK_RECORD_KEY=secrets.token_hex(32)
    )

    def legwork(*words):
        return subprocess.run(
            ["legwork", *words], cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60,
        )

    options = ["--rows", "rows.csv", "--id", "id", "--jobs", "2", "--isolate", "copy"]
    options += ["--model", "replay/jobs/report.script.yaml", "--shards", str(SHARDS)]
    emitted = legwork("emit", "slurm", "jobs/report.yaml", *options)
    if emitted.returncode != 0:
        fail(f"emit: exit {emitted.returncode}\n{emitted.stderr}")
    (work / "map.sh").write_text(emitted.stdout)
    submitted = subprocess.run(
        ["sbatch", "--parsable", "map.sh"], cwd=work, env=environment, check=True, capture_output=True, text=True
    )
    job = submitted.stdout.strip()

    wait_for("the first six reports", lambda: len(effects.lines) >= 6, 60)
    killed = kill_node(cluster, NODES[0])
    print(f"killed the node {NODES[0]} with {killed} processes after {len(effects.lines)} reports")
    kill_runs(cluster, program, KILLED_RUNS)
    print(f"killed {KILLED_RUNS} runs; there are {len(effects.lines)} reports")
    wait_for("the end of all tasks", lambda: cluster.run("squeue", "--noheader", "--jobs", job).strip() == "", 140)
    shown = cluster.run("scontrol", "show", "job", job)
    states = collections.Counter(re.findall(r"JobState=(\w+)", shown))
    restarts = sum(int(number) for number in re.findall(r"Restarts=(\d+)", shown))
    print(f"tasks: {dict(states)}; {restarts} restarts; {len(effects.lines)} reports")
    if states != {"COMPLETED": SHARDS}:
        fail(f"not all tasks completed: {dict(states)}")
    # Each killed run is one restart of its task, and so is each task of the node.
    if restarts < KILLED_RUNS + 1:
        fail(f"only {restarts} restarts")

    reports = collections.Counter(row_of(line, ids) for line in effects.lines)
    twice = sorted(row for row, count in reports.items() if count > 1)
    if twice:
        fail(f"these rows reported more than once: {twice}")
    # A run that is killed just before its call starts can't know that the call had no effect, so it doesn't repeat it.
    # Each killed process runs two rows at once.
    most = 2 * (KILLED_RUNS + 4)
    if len(reports) < ROWS - most:
        fail(f"only {len(reports)} rows reported")

    folder = work / "runs/report/map-rows"
    for row in sorted(ids):
        finished = finished_runs(folder / "rows" / row)
        if finished != 1:
            fail(f"{row} was finished {finished} times")
    gathered = legwork("gather", "runs/report/map-rows", "--rows", "rows.csv", "--id", "id", "--to", "gathered")
    if gathered.returncode != 0:
        fail(f"gather: exit {gathered.returncode}\n{gathered.stdout}{gathered.stderr}")
    results = [json.loads(line) for line in (work / "gathered/results.jsonl").read_text().splitlines()]
    if sorted(result["id"] for result in results) != sorted(ids):
        fail(f"gather has {len(results)} rows: {[result['id'] for result in results]}")
    bad = [result["id"] for result in results if result["outcome"] != "completed"]
    if bad:
        fail(f"these rows didn't complete: {bad}")
    print(f"all {ROWS} rows finished exactly once; {len(reports)} reported, none twice")


def main():
    program = pathlib.Path(sys.argv[1]).resolve(strict=True)
    # A short path, as sockets have at most 107 characters.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="legwork-slurm-", dir="/tmp"))
    folder.chmod(0o755)
    cluster = Cluster(folder)
    # Ends with the cleanup below.
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        run(cluster, program)
    except BaseException:
        cluster.logs()
        raise
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


main()
