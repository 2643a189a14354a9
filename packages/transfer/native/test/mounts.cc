// Which folders peers may open directly, according to made-up tables of mounts.
#include "mounts.h"

#include <sys/sysmacros.h>

#include <cstdio>

using namespace svc;

int main() {
  const std::string table =
      "22 1 0:21 / /proc rw,relatime - proc proc rw\n"
      "27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard\n"
      "40 27 0:44 / /data/slow\\040one rw,nosuid - fuse.hang hang rw,user_id=0\n"
      "41 40 8:1 / /data/slow\\040one/inner rw - xfs /dev/sda1 rw\n"
      "42 27 0:45 / /mnt rw - nfs4 server:/ rw\n"
      "half a line\n";
  const auto disk = makedev(254, 0), fuse = makedev(0, 44), volume = makedev(0, 99);
  const bool good = kernelAnswersFor("/data/fast", disk, table) && kernelAnswersFor("/data/slow", disk, table) && kernelAnswersFor("/data/fast", volume, table) &&
                    !kernelAnswersFor("/data/slow one", fuse, table) && !kernelAnswersFor("/data/slow one/objects", fuse, table) &&
                    // A path that leads into the mount, and one that passes through it.
                    !kernelAnswersFor("/data/link", fuse, table) && !kernelAnswersFor("/data/slow one/inner/objects", makedev(8, 1), table) &&
                    !kernelAnswersFor("/mnt/objects", makedev(0, 45), table) && kernelAnswersFor("/mntx", disk, table);
  puts(good ? "as it should be" : "a folder was taken for another kind");
  return good ? 0 : 1;
}
