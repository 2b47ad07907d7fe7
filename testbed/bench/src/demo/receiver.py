# An independent receiver: stores the bytes of each connection. Arguments: the sender's address, connections, folder.
import json, os, socket, sys, threading

host, port = sys.argv[1].rsplit(":", 1)
connections, folder = int(sys.argv[2]), sys.argv[3]
sizes = []

# Standard input ends with the demo: no more data come then.
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()


def receive(number, connection):
    size = 0
    with open(os.path.join(folder, str(number)), "wb") as out:
        while data := connection.recv(1 << 18):
            out.write(data)
            size += len(data)
    connection.close()
    sizes.append(size)


threads = []
for number in range(connections):
    connection = socket.create_connection((host, int(port)))
    connection.sendall(number.to_bytes(4, "little"))
    threads.append(threading.Thread(target=receive, args=(number, connection)))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(sum(sizes)))
