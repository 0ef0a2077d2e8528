"""What may happen to a file, each a function of its path. Those in KEEP_CONTENTS leave its bytes somewhere."""
import os
import shutil

import toy


def removed(path):
    toy.remove_tree(path)


def emptied(path):
    os.truncate(path, 0)


def zeroed(path):
    path.write_bytes(bytes(path.stat().st_size))


def halved(path):
    os.truncate(path, path.stat().st_size // 2)


def short_by_one(path):
    os.truncate(path, path.stat().st_size - 1)


def one_byte_long(path):
    os.truncate(path, 1)


def grown(path):
    with open(path, "ab") as file:
        file.write(b"\xaa" * 4096)


def garbage(path):
    path.write_bytes(bytes((i * 197 + 91) % 256 for i in range(path.stat().st_size)))


def directory(path):
    toy.remove_tree(path)
    path.mkdir()


def full_directory(path):
    toy.remove_tree(path)
    path.mkdir()
    (path / "something").write_text("of somebody\n")


def dangling_link(path):
    toy.remove_tree(path)
    path.symlink_to("nowhere")


def link_to_itself(path):
    toy.remove_tree(path)
    path.symlink_to(path.name)


def link_elsewhere(path):
    """Somebody moved the file to another place and left a link."""
    there = path.parent.parent / ("moved-" + path.name)
    shutil.move(path, there)
    path.symlink_to(there)


def unmounted(path):
    """A device that is not there at this start: an empty directory, and all its files somewhere else."""
    shutil.move(path, path.parent / f"elsewhere-{path.name}")
    path.mkdir()


def pipe(path):
    toy.remove_tree(path)
    os.mkfifo(path)


def forbidden(path):
    path.chmod(0)


def read_only(path):
    path.chmod(0o400)


WHOLE_FILE = [removed, emptied, zeroed, halved, short_by_one, one_byte_long, grown, garbage, directory, full_directory,
              dangling_link, link_to_itself, link_elsewhere, pipe]
PERMISSIONS = [forbidden, read_only]
KEEP_CONTENTS = {grown, link_elsewhere, forbidden, read_only}


def name_of(blow):
    return blow.__name__.replace("_", "-")


def flip(path, offset, mask=0x10):
    """One bit of one byte."""
    with open(path, "r+b") as file:
        file.seek(offset)
        old = file.read(1)
        file.seek(offset)
        file.write(bytes([old[0] ^ mask]))


def put_older(scene, name, step):
    """A copy of the file from an earlier step, in the place of the newer one."""
    toy.remove_tree(scene.work / name)
    toy.copy_entry(scene.copy_of(step) / name, scene.work / name)
