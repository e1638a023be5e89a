"""The message in an object that a server answered in protobuf."""

from kai_py.watch.protobuf import change_object


def message_of(body: bytes) -> bytes:
    found: list[bytes] = []

    def keep(message: bytes) -> bytes:
        found.append(message)
        return message

    change_object(body, keep)
    return b"".join(found)
