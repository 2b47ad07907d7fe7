# An independent implementation: hashlib, gzip and the openssl command. Reads the engine's results, repeats the work from the
# original files, and compares every byte and every digest.
import gzip, hashlib, json, subprocess, sys


def aes256_ctr(data, key, counter):
    command = ["openssl", "enc", "-e", "-aes-256-ctr", "-K", key, "-iv", counter]
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def check(file):
    with open(file["original"], "rb") as original:
        data = original.read()
    with open(file["stored"], "rb") as stored:
        stored.seek(file["offset"])
        found = stored.read(file["length"])
    digests = []
    for operator in file["chain"]:
        if operator == "aes256-ctr":
            data = aes256_ctr(data, file["key"], file["counter"])
        elif operator == "gzip":
            # Compressors differ in the bytes they write, so the decompressed data are compared.
            found = gzip.decompress(found)
        else:
            digests.append([operator, hashlib.new(operator, data).hexdigest()])
    if digests != file["digests"]:
        return "digests are %s, not %s" % (file["digests"], digests)
    if found != data:
        return "the bytes differ (%d, not %d)" % (len(found), len(data))
    return None


report = {"files": 0, "bytes": 0, "digests": 0, "errors": []}
for file in json.load(sys.stdin):
    try:
        error = check(file)
    except Exception as exception:
        error = "could not be checked: %r" % exception
    if error:
        report["errors"].append("%s: %s" % (file["original"], error))
    report["files"] += 1
    report["bytes"] += file["length"]
    report["digests"] += len(file["digests"])
print(json.dumps(report))
