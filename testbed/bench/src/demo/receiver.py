# The independent receiver: stores what each connection carries. Arguments: connections, folder.
import json, os, resource, socket, sys, threading

connections, folder = int(sys.argv[1]), sys.argv[2]
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
print(json.dumps({"address": "127.0.0.1:%d" % listener.getsockname()[1]}), flush=True)
sizes = []

# Standard input ends when the demo does: nobody will connect then.
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()


def receive(connection):
    number = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "little")
    size = 0
    with open(os.path.join(folder, str(number)), "wb") as out:
        while data := connection.recv(1 << 18):
            out.write(data)
            size += len(data)
    connection.close()
    sizes.append(size)


threads = [threading.Thread(target=receive, args=(listener.accept()[0],)) for _ in range(connections)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
used = resource.getrusage(resource.RUSAGE_SELF)
cpu = used.ru_utime + used.ru_stime
print(json.dumps({"wall_s": 0, "cpu_s": cpu, "bytes_in": sum(sizes), "bytes_out": sum(sizes), "files": []}))
