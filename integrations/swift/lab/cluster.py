"""A Swift cluster on this machine: one device, one replica unless more are requested, tempauth, ports chosen by the kernel.

None of it outlives the process that created it: each server ends with its parent. It needs memcached and a
folder on a file system with extended attributes (Swift's metadata); tmpfs has them from Linux 6.6 on.
"""

import base64
import ctypes
import errno
import http.client
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH_PIPELINE = "catch_errors healthcheck proxy-logging cache tempauth copy dlo slo proxy-logging proxy-server"
# Required by Swift's functional tests; s3api for those that look for it in /info.
TEST_PIPELINE = (
    "catch_errors gatekeeper healthcheck proxy-logging cache listing_formats container_sync bulk tempurl ratelimit "
    "s3api tempauth copy container_quotas account_quotas slo dlo versioned_writes symlink staticweb proxy-logging "
    "proxy-server"
)
USERS = """\
user_admin_admin = admin .admin .reseller_admin
user_test_tester = testing .admin
user_test_tester2 = testing2 .admin
user_test2_tester2 = testing2 .admin
user_test_tester3 = testing3
user_test5_tester5 = testing5 service
"""
FILTERS = (
    "catch_errors healthcheck copy slo dlo gatekeeper listing_formats container_sync bulk tempurl ratelimit "
    "container_quotas account_quotas symlink staticweb encryption"
).split()
# Policies of a cluster with several: names and backends.
FORMS = {"plain": "plain.fs", "encrypted": "aes256-ctr.fs", "compressed": "gzip.fs"}
# An additional policy with Swift's own backend. It needs three copies.
ERASURE = "erasure"
ERASURE_CODE = """\
policy_type = erasure_coding
ec_type = liberasurecode_rs_vand
ec_num_data_fragments = 2
ec_num_parity_fragments = 1
"""
CONTENDERS = ("stock", "hashlib", "dcs")
START_S = 40
STOP_S = 15
DESCRIPTORS = 32768
LAB = Path(__file__).resolve().parent.parent
PR_SET_PDEATHSIG = 1
# The secret of `keymaster`, for a pipeline with the proxy's own encryption.
ROOT_SECRET = base64.b64encode(bytes(range(32))).decode()
_LIBC = ctypes.CDLL(None)


class Missing(Exception):
    """Something that this machine lacks: a reason to skip."""


def demand_memcached():
    if shutil.which("memcached") is None:
        raise Missing("memcached is not installed")


def data_folder(needed, given=None):
    """Yields a folder for the objects with `needed` bytes free: `given`, or memory if it is large enough, or a temporary one."""
    places = [given] if given else ["/dev/shm", tempfile.gettempdir()]
    why = []
    for place in places:
        try:
            folder = Path(tempfile.mkdtemp(prefix="dcs-swift-", dir=place))
        except OSError as error:
            why.append(str(error))
            continue
        try:
            os.setxattr(folder, "user.dcs", b"x" * 1000)
            # Memory that holds objects is missing elsewhere, so half of the free memory is left.
            free = shutil.disk_usage(folder).free / (2 if place == "/dev/shm" else 1)
            if free >= needed:
                return folder
            why.append(f"{place} has {free / 2**30:.1f} GiB to spare, {needed / 2**30:.1f} GiB are needed")
        except OSError as error:
            why.append(f"{place}: extended attributes: {error}")
        shutil.rmtree(folder)
    raise Missing("; ".join(why))


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def die_with_parent():
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_s(pid):
    """Returns user and system time of a process with all its threads, including the kernel's workers for it."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13]]


def engine_cpu_s(pid):
    """Returns user and system time of an engine's thread in a process, and of the kernel's workers for its ring; part of `cpu_s`."""
    both = [0.0, 0.0]
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/stat") as file:
                name, fields = file.read().split("(", 1)[1].rsplit(")", 1)
        except FileNotFoundError:
            # The thread has ended, and its time is in the process's.
            continue
        if name == "dcs-engine" or name.startswith("iou-wrk-"):
            for kind, field in enumerate(fields.split()[11:13]):
                both[kind] += int(field) / os.sysconf("SC_CLK_TCK")
    return both


class Cluster:
    """A running cluster: `with Cluster(...) as cluster:`."""

    def __init__(
        self,
        contender,
        folder=None,
        device_folder=None,
        forms=("plain",),
        pipeline=BENCH_PIPELINE,
        object_options=None,
        cores=None,
        workers=0,
        copies=1,
    ):
        """`workers`: serving processes of the object server, 0 for a single process; `copies`: of each object, each on a separate device."""
        if contender not in CONTENDERS:
            raise ValueError(f"{contender}: expected one of {', '.join(CONTENDERS)}")
        demand_memcached()
        self.contender, self.pipeline, self.cores = contender, pipeline, cores
        self.workers, self.copies = workers, copies
        self.forms = list(forms)
        self.object_options = object_options or {}
        self._mine = [] if folder else [Path(tempfile.mkdtemp(prefix="dcs-swift-"))]
        self.folder = Path(folder or self._mine[0])
        self.devices = Path(device_folder or self.folder / "devices")
        self.etc, self.logs, self.recon = self.folder / "etc", self.folder / "log", self.folder / "recon"
        self.processes = {}
        names = ["proxy", "account", "container", "object", "memcached"]
        self.ports = dict(zip(names, _free_ports(len(names))))

    def __enter__(self):
        self.configure()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        for folder in self._mine:
            shutil.rmtree(folder, ignore_errors=True)

    # Configuration

    def configure(self):
        for folder in (self.etc, self.logs, self.recon, *(self.devices / name for name in self.names_of_devices())):
            folder.mkdir(parents=True, exist_ok=True)
        (self.etc / "key").write_text("5a" * 32)
        self._swift_conf()
        self._proxy_conf()
        for server in ("account", "container", "object"):
            self._server_conf(server)
        self._rings()

    def names_of_devices(self):
        return [f"d{number + 1}" for number in range(self.copies)]

    def _swift_conf(self):
        text = "[swift-hash]\nswift_hash_path_prefix = dcs\nswift_hash_path_suffix = dcs\n"
        for index, form in enumerate(self.forms):
            text += f"[storage-policy:{index}]\nname = {form}\n" + ("default = yes\n" if index == 0 else "")
            if form == ERASURE:
                text += ERASURE_CODE
            elif self.contender != "stock":
                text += f"diskfile_module = egg:dcs-swift#{FORMS[form]}\n"
        (self.etc / "swift.conf").write_text(text)

    def _server_conf(self, server):
        ours = server == "object" and self.contender != "stock"
        options = {"use": f"egg:{'dcs-swift' if ours else 'swift'}#{server}"}
        if server == "object":
            options.update(self.object_options)
        if ours:
            options["engine"] = self.contender
        text = f"""\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {self.ports[server]}
workers = {self.workers if server == "object" else 0}
user = {self._user()}
swift_dir = {self.etc}
devices = {self.devices}
recon_cache_path = {self.recon}
mount_check = false
fallocate_reserve = 0
log_level = INFO
db_preallocation = off
dcs_key_file = {self.etc / "key"}
[object-auditor]
[object-replicator]
sync_method = ssync
[pipeline:main]
pipeline = {server}-server
[app:{server}-server]
"""
        text += "".join(f"{name} = {value}\n" for name, value in options.items())
        (self.etc / f"{server}-server.conf").write_text(text)

    def _proxy_conf(self):
        text = f"""\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {self.ports["proxy"]}
workers = 0
user = {self._user()}
swift_dir = {self.etc}
log_level = INFO
[pipeline:main]
pipeline = {self.pipeline}
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
allow_open_expired = true
account_autocreate = true
[filter:proxy-logging]
use = egg:swift#proxy_logging
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{self.ports["memcached"]}
[filter:s3api]
use = egg:swift#s3api
s3_acl = true
allow_no_owner = true
check_bucket_owner = true
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_versioned_writes = true
[filter:keymaster]
use = egg:swift#keymaster
encryption_root_secret = {ROOT_SECRET}
[filter:tempauth]
use = egg:swift#tempauth
reseller_prefix = AUTH
{USERS}"""
        text += "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in FILTERS)
        (self.etc / "proxy-server.conf").write_text(text)

    def _rings(self):
        from swift.common.ring import RingBuilder

        names = ["account", "container"] + ["object" + (f"-{i}" if i else "") for i in range(len(self.forms))]
        for name in names:
            port = self.ports[name.split("-")[0]]
            devices = self.names_of_devices() if name.startswith("object") else ["d1"]
            builder = RingBuilder(4, len(devices), 0)
            same = {"region": 1, "zone": 1, "weight": 1.0, "ip": "127.0.0.1", "port": port}
            for number, device in enumerate(devices):
                builder.add_dev({**same, "id": number, "device": device})
            builder.rebalance()
            builder.get_ring().save(str(self.etc / f"{name}.ring.gz"))

    @staticmethod
    def _user():
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name

    # Processes

    def start(self):
        memcached = ["memcached", "-l", "127.0.0.1", "-p", str(self.ports["memcached"]), "-U", "0", "-m", "32"]
        if os.getuid() == 0:
            memcached += ["-u", "root"]
        self._run("memcached", memcached)
        for server in ("account", "container", "object", "proxy"):
            self.start_server(server, wait=False)
        for server in ("memcached", "account", "container", "object", "proxy"):
            self._await(server)
        self._await_healthy()

    def start_server(self, server, wait=True):
        self._run(server, [sys.executable, "-m", "lab.serve", server, self.etc / f"{server}-server.conf", "-v"])
        if wait:
            self._await(server)

    def audit(self):
        """Makes one round of Swift's own auditor, and returns its output."""
        return self._once("auditor")

    def replicate(self):
        """Makes one round of Swift's own replicator, by ssync."""
        return self._once("replicator")

    def _once(self, daemon):
        command = [sys.executable, "-m", "lab.serve", daemon, self.etc / "object-server.conf", "once", "-v"]
        done = subprocess.run(command, cwd=LAB, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"the {daemon}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def _run(self, name, command):
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
        with open(self.logs / name, "ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                cwd=LAB,
                preexec_fn=self._before,
            )

    def _before(self):
        die_with_parent()
        # As swift-init does.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
        if self.cores:
            os.sched_setaffinity(0, self.cores)

    def _await(self, name):
        until = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.ports[name]), 1).close()
                return
            except OSError as error:
                self._give_up_at(name, until, error)
            time.sleep(0.05)

    def _await_healthy(self):
        until = time.monotonic() + START_S
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.ports["proxy"], timeout=5)
            try:
                connection.request("GET", "/healthcheck")
                if connection.getresponse().status == 200:
                    return
            except OSError as error:
                self._give_up_at("proxy", until, error)
            finally:
                connection.close()
            time.sleep(0.05)

    def _give_up_at(self, name, until, error):
        if self.processes[name].poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{name} does not answer ({error}); its log:\n{self.log(name)[-3000:]}")

    def pid(self, server):
        return self.processes[server].pid

    def log(self, server):
        return (self.logs / server).read_text(errors="replace")

    def workers_of(self, server):
        """Returns its processes except the first."""
        pid = self.pid(server)
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self, server):
        """Ends one server with its workers, at once, and waits for it."""
        process = self.processes.pop(server)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        until = time.monotonic() + STOP_S
        for process in self.processes.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    # Clients

    def token(self, user="test:tester", password="testing"):
        """Returns token and storage path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["proxy"], timeout=30)
        connection.request("GET", "/auth/v1.0", headers={"X-Storage-User": user, "X-Storage-Pass": password})
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(errno.EACCES, f"tempauth answered {answer.status}")
        path = answer.headers["X-Storage-Url"].split(f":{self.ports['proxy']}", 1)[1]
        return answer.headers["X-Auth-Token"], path

    def counters(self, settle=1.5):
        """Returns the object server's counters, which are written within a second."""
        from dcs_swift.counters import total

        time.sleep(settle)
        return total(str(self.recon))
