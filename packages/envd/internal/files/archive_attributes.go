package files

// Reads the extended attributes that an archive of a tree contains.

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

// namesSlack is needed because gVisor's list of names may be longer than the size that it reported.
const namesSlack = 4 << 10

// userAttributes returns the attributes that a file's owner may set; a file system without attributes has none.
func userAttributes(fd int) ([]attribute, error) {
	size, err := unix.Flistxattr(fd, nil)
	if err == unix.ENOTSUP || (err == nil && size == 0) {
		return nil, nil
	}
	names := make([]byte, size+namesSlack)
	if err == nil {
		size, err = unix.Flistxattr(fd, names)
	}
	if err != nil {
		return nil, failure.About(err, "cannot list attributes")
	}
	var found []attribute
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:size]), "\x00"), "\x00") {
		// An equals sign would end the name early in a record of the archive.
		if !strings.HasPrefix(name, "user.") || strings.Contains(name, "=") {
			continue
		}
		value := make([]byte, maxNamesBytes)
		n, err := unix.Fgetxattr(fd, name, value)
		if err == unix.ENODATA {
			continue
		}
		if err != nil {
			return nil, failure.About(err, "cannot read the attribute %s", strconv.Quote(name))
		}
		found = append(found, attribute{name, value[:n]})
	}
	return found, nil
}
