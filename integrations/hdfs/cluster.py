"""A real HDFS on this machine: a NameNode and DataNodes, each a process of its own, from Apache's jars.

A DataNode may be started with libdcs-preload.so; its data are on a small file system (tmpfs, if mounting is
permitted), because the balancer looks at how full file systems are.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

JAVA = [
    "java", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true",
    "--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.nio=ALL-UNNAMED",
    "--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED",
]
LOGGING = """log4j.rootLogger=%s,c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.target=System.err
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%%d %%p %%c{1}: %%m%%n
"""
TICKS = os.sysconf("SC_CLK_TCK")


def jars():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    return cache / "dcs" / "hdfs" / "lib"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """A NameNode, and the folders of its DataNodes."""

    def __init__(self, folder, block_size=64 << 20, data_size="1g"):
        self.folder = pathlib.Path(folder)
        self.block_size = block_size
        self.data_size = data_size
        self.processes = {}
        self.mounts = []
        self.name_port, self.web_port = free_port(), free_port()
        # Hadoop searches its class path for these folders.
        for name in ("hdfs", "datanode", "static"):
            (self.folder / "classes" / "webapps" / name).mkdir(parents=True)
        self._configure("name", {})
        self._configure("client", {}, level="WARN")
        self._configure("job", {})

    def _configure(self, name, own, level="INFO"):
        properties = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{self.name_port}",
            "hadoop.tmp.dir": self.folder / "tmp",
            "dfs.namenode.name.dir": f"file://{self.folder}/names",
            "dfs.namenode.http-address": f"127.0.0.1:{self.web_port}",
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.redundancy.interval.seconds": "1s",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.heartbeat.interval": 1,
            "dfs.blocksize": self.block_size,
            "dfs.datanode.balance.bandwidthPerSec": "10g",
            # A client on the same machine would otherwise open the block's file itself.
            "dfs.client.read.shortcircuit": "false",
            # Otherwise a gibibyte is always left free.
            "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": 0,
            "mapreduce.framework.name": "local",
        } | own
        folder = self.folder / f"conf-{name}"
        folder.mkdir(exist_ok=True)
        lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in properties.items()]
        for file in ("core-site.xml", "hdfs-site.xml"):
            (folder / file).write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")
        (folder / "log4j.properties").write_text(LOGGING % level)

    def _command(self, name, main, *arguments, memory="512m"):
        path = f"{self.folder}/conf-{name}:{self.folder}/classes:{jars()}/*"
        return [*JAVA, f"-Xmx{memory}", "-cp", path, main, *map(str, arguments)]

    def _start(self, name, main, environment):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen(
            self._command(name, main), stdout=log, stderr=log, env=os.environ | environment)

    def _run(self, name, main, *arguments):
        done = subprocess.run(self._command(name, main, *arguments), capture_output=True)
        if done.returncode:
            raise RuntimeError(f"{main} {arguments}: {done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout

    def client(self, main, *arguments):
        """Runs a program of Hadoop's on the cluster, and returns its output."""
        return self._run("client", main, *arguments)

    def job(self, main, *arguments):
        """Runs a job, and returns what it says, counters included, its seconds, and its CPU seconds: those of its own, and of the
        programs that it has started and waited for."""
        start = time.monotonic()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(self._command("job", main, *arguments), stdout=said, stderr=said)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.monotonic() - start
            said.seek(0)
            text = said.read().decode(errors="replace")
        # The grep example goes on to its second job where the first one has failed, and ends with 0.
        if process.returncode or "failed with state FAILED" in text:
            raise RuntimeError(f"{main} {arguments}: {text}")
        return text, seconds, used.ru_utime + used.ru_stime

    def shell(self, *arguments):
        """`hdfs dfs ...`"""
        return self.client("org.apache.hadoop.fs.FsShell", *arguments)

    def read_all(self, path):
        """Reads a file of HDFS, and discards it."""
        command = self._command("client", "org.apache.hadoop.fs.FsShell", "-cat", path)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def data_folder(self, name):
        """Makes the folder of a DataNode, on a separate file system if possible."""
        folder = self.folder / f"data-{name}"
        if not folder.is_dir():
            folder.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={self.data_size}", "tmpfs", str(folder)]
            if os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0:
                self.mounts.append(folder)
        return folder

    def start_data(self, name, environment=None):
        """Starts a DataNode, and waits until the NameNode knows it."""
        ports = {key: f"127.0.0.1:{free_port()}" for key in ("address", "ipc.address", "http.address")}
        own = {f"dfs.datanode.{key}": value for key, value in ports.items()}
        own["dfs.datanode.data.dir"] = f"file://{self.data_folder(name)}/dn"
        self._configure(name, own)
        self._start(name, "org.apache.hadoop.hdfs.server.datanode.DataNode", environment or {})
        self.wait(lambda: ports["address"] in self.live(), f"DataNode {name}")
        self.wait(self.is_whole, "the blocks")

    def stop(self, name):
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _jmx(self, bean):
        url = f"http://127.0.0.1:{self.web_port}/jmx?qry=Hadoop:service=NameNode,name={bean}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["beans"][0]

    def live(self):
        """Returns the addresses of the DataNodes that the NameNode knows."""
        try:
            nodes = json.loads(self._jmx("NameNodeInfo")["LiveNodes"])
            return {node["xferaddr"] for node in nodes.values() if node["remaining"] > 0}
        except (OSError, IndexError, KeyError):
            return set()

    def is_whole(self):
        """Returns whether every block of every file is on a DataNode that has reported it."""
        return not self._jmx("NameNodeInfo")["Safemode"] and self._jmx("FSNamesystem")["MissingBlocks"] == 0

    def wait(self, condition, what, seconds=90):
        end = time.monotonic() + seconds
        while not condition():
            dead = [name for name, process in self.processes.items() if process.poll() is not None]
            if dead or time.monotonic() > end:
                logs = [(self.folder / f"{name}.log").read_text()[-1500:] for name in dead or self.processes]
                raise RuntimeError(f"waiting for {what}: {dead or 'too long'}\n" + "\n".join(logs))
            time.sleep(0.1)

    def cpu(self, name):
        """Returns the CPU seconds of a process: (user, system)."""
        fields = pathlib.Path(f"/proc/{self.processes[name].pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) / TICKS, int(fields[12]) / TICKS

    def blocks(self, name):
        """Returns the block files of a DataNode, by name."""
        files = self.data_folder(name).rglob("blk_*")
        return {file.name: file for file in files if not file.name.endswith(".meta")}

    def close(self):
        for name in list(self.processes):
            self.stop(name)
        for folder in self.mounts:
            subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        self._run("name", "org.apache.hadoop.hdfs.server.namenode.NameNode", "-format", "-force")
        self._start("name", "org.apache.hadoop.hdfs.server.namenode.NameNode", {})
        return self

    def __exit__(self, *error):
        self.close()
