"""Checks the claims of a C test: python3 check.py LOG. Prints how many there were."""
import hashlib, subprocess, sys, zlib, gzip

def part(name, start, length):
    with open(name, "rb") as file:
        file.seek(start)
        data = file.read(length)
    assert len(data) == length, f"{name} has no {length} bytes at {start}"
    return data

def digest(operator, text, name, start, length):
    data = part(name, int(start), int(length))
    if operator == "crc32":
        expected = f"{zlib.crc32(data):08x}"
    else:
        expected = hashlib.new(operator, data).hexdigest()
    assert text == expected, f"{operator} of {name}[{start}:+{length}] is {expected}, not {text}"

def same(one, start, length, other, at):
    assert part(one, int(start), int(length)) == part(other, int(at), int(length)), \
        f"{one}[{start}:+{length}] is not at {at} in {other}"

def aes256_ctr(key, counter, plain, cipher):
    command = ["openssl", "enc", "-aes-256-ctr", "-K", key, "-iv", counter, "-in", plain]
    assert subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout == open(cipher, "rb").read(), \
        f"{cipher} is not {plain} encrypted"

def gunzip(plain, packed):
    assert gzip.decompress(open(packed, "rb").read()) == open(plain, "rb").read(), f"{packed} is not {plain}"

CLAIMS = {"digest": digest, "same": same, "aes256-ctr": aes256_ctr, "gunzip": gunzip}
count = 0
for line in open(sys.argv[1]):
    if line == "end\n":
        continue
    what, *arguments = line.split()
    CLAIMS[what](*arguments)
    count += 1
print(count)
