"""Operators on a GPU, on the stand-in of CUDA's driver that the Rust tests have too. A process loads a driver once: each runs one of its own."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import dcs
import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "crates/devices/tests/cuda/driver.cpp"

GOOD = """
import dcs, hashlib, zlib
data = bytes(range(256)) * 1000 + b"end"
key, counter = bytes(range(32)), b"\\xff" * 16
with dcs.Engine(gpu=0) as engine:
    def run(through):
        return dcs.transfer(data, dcs.Memory(len(data)), through, engine=engine).result()
    done = run(["gpu:md5", dcs.aes256_ctr(key, counter).on_gpu(), "gpu:crc32"])
    plain = run(["md5", dcs.aes256_ctr(key, counter), "crc32"])
    assert done.memory == plain.memory != data
    assert done.digests == plain.digests and done.digests["md5"] == hashlib.md5(data).digest()
    assert dcs.md5().on_gpu().name == "gpu:md5" and "gpu:md5" in repr(dcs.md5().on_gpu())
    try:
        run(dcs.md5(expect=b"x" * 16).on_gpu())
    except dcs.Error as error:
        assert error.status == "DIGEST_MISMATCH" and error.operator == (0, "gpu:md5"), error
    else:
        raise SystemExit("another digest was taken")
"""

FILES = """
import dcs, hashlib, os, tempfile
data = os.urandom(300_000)
with tempfile.TemporaryFile(dir=os.environ["PLACE"]) as file:
    file.write(data)
    file.flush()
    for mode in ["on", "off"]:
        with dcs.Engine(gpu=0, gpu_storage=mode) as engine:
            transfer = dcs.transfer(file, dcs.Memory(len(data)), "gpu:md5", source_cache="off", engine=engine)
            done = transfer.result()
            assert done.memory == data and done.digests["md5"] == hashlib.md5(data).digest()
            assert ("GPUDirect Storage" in done.path) == (mode == "on"), done.path
try:
    dcs.Engine(gpu=0, gpu_storage="perhaps")
except ValueError as error:
    assert "gpu_storage must be auto, on or off, not" in str(error), error
else:
    raise SystemExit("a mode that is none was taken")
"""

MISSING = """
import dcs, errno
try:
    dcs.Engine(gpu=0)
except dcs.Error as error:
    assert error.errno == errno.ENODEV and "no GPU: /no/such/libcuda.so.1" in str(error), error
else:
    raise SystemExit("there is a GPU")
"""


def run(program, library):
    place = str(pathlib.Path(library).parent)
    libraries = {"DCS_CUDA_LIBRARY": str(library), "DCS_CUFILE_LIBRARY": str(library)}
    environment = {**os.environ, **libraries, "PLACE": place}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)


def test_a_gpu_does_what_the_cpu_does(tmp_path):
    compiler = next(filter(shutil.which, ["c++", "g++", "clang++"]), None)
    if compiler is None or not SOURCE.exists():
        pytest.skip("the stand-in of CUDA's driver needs its source and a compiler of C++")
    library = tmp_path / "stand-in.so"
    flags = ["-std=c++17", "-O1", "-Wno-unknown-pragmas", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *flags, "-o", library, SOURCE], check=True)
    run(GOOD, library)
    run(FILES, library)


def test_without_a_driver_there_is_no_gpu():
    run(MISSING, "/no/such/libcuda.so.1")


def test_an_engine_without_a_gpu_says_so():
    data = b"data"
    with pytest.raises(dcs.Error, match=r"gpu:md5: this engine has no GPU: make one that has, by Engine\(gpu=0\)"):
        dcs.transfer(data, dcs.Memory(4), "gpu:md5").result()
    with pytest.raises(ValueError, match="no GPU does gzip; GPUs do: gpu:md5"):
        dcs.gzip().on_gpu()
    with pytest.raises(ValueError, match="no GPU does sha1"):
        dcs.transfer(data, dcs.Memory(4), "gpu:sha1")
    assert dcs.transfer(data, dcs.Memory(4), "md5").result().digests["md5"] == hashlib.md5(data).digest()
