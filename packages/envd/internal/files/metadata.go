package files

// A file's metadata: strings that a client sent with an upload, stored in extended attributes of the file itself.

import (
	"net/http"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const (
	// The prefix that E2B uses, so that programs in the sandbox see the clients' metadata, and clients theirs.
	attributePrefix = "user.e2b."
	// The prefix of earlier versions of envd, which is still read, and replaced at the next upload.
	formerPrefix = "user.svc."
	headerPrefix = "X-Metadata-"

	maxKeyBytes      = 255 - len(attributePrefix) // the kernel's limit for an attribute's name
	maxMetadataBytes = 4096                       // ext4 keeps all attributes of a file in one block
	maxNamesBytes    = 64 << 10
)

// metadataOf reads X-Metadata-<key> headers; keys are lower case, since header names are case-insensitive.
func metadataOf(header http.Header) (map[string]string, error) {
	metadata, size := map[string]string{}, 0
	for name, values := range header {
		key, found := strings.CutPrefix(name, headerPrefix)
		if !found {
			continue
		}
		key = strings.ToLower(key)
		if key == "" || len(key) > maxKeyBytes || !printable(key) || !printable(values[0]) {
			return nil, failure.New(failure.InvalidArgument,
				"metadata '%.300s' is refused: keys have 1 to %d bytes, keys and values are printable ASCII", key, maxKeyBytes)
		}
		metadata[key] = values[0]
		size += len(attributePrefix) + len(key) + len(values[0])
	}
	if size > maxMetadataBytes {
		return nil, failure.New(failure.InvalidArgument,
			"metadata has %d bytes; keys (each with %d bytes of prefix) and values may have %d", size, len(attributePrefix), maxMetadataBytes)
	}
	return metadata, nil
}

func printable(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0
}

// replaceMetadata gives the file exactly this metadata.
func replaceMetadata(fd int, metadata map[string]string) error {
	for _, name := range attributeNames(func(into []byte) (int, error) { return unix.Flistxattr(fd, into) }) {
		if _, kept := metadata[keyOf(name)]; !kept || strings.HasPrefix(name, formerPrefix) {
			if err := unix.Fremovexattr(fd, name); err != nil && err != unix.ENODATA {
				return failure.About(err, "cannot remove old metadata")
			}
		}
	}
	for key, value := range metadata {
		if err := unix.Fsetxattr(fd, attributePrefix+key, []byte(value), 0); err != nil {
			return failure.About(err, "cannot store metadata '%s' as an extended attribute of this file system", key)
		}
	}
	return nil
}

// readMetadata ignores unreadable attributes, since a listing must not fail because of them.
func readMetadata(path string) map[string]string {
	names := attributeNames(func(into []byte) (int, error) { return unix.Listxattr(path, into) })
	if len(names) == 0 {
		return nil
	}
	metadata := make(map[string]string, len(names))
	value := make([]byte, maxMetadataBytes)
	for _, name := range names {
		if _, known := metadata[keyOf(name)]; known && strings.HasPrefix(name, formerPrefix) {
			continue
		}
		if n, err := unix.Getxattr(path, name, value); err == nil {
			metadata[keyOf(name)] = string(value[:n])
		}
	}
	return metadata
}

func keyOf(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, formerPrefix), attributePrefix)
}

func attributeNames(list func([]byte) (int, error)) []string {
	size, err := list(nil)
	if err != nil || size <= 0 || size > maxNamesBytes {
		return nil
	}
	buffer := make([]byte, size+namesSlack)
	if size, err = list(buffer); err != nil {
		return nil
	}
	var ours []string
	for name := range strings.SplitSeq(string(buffer[:size]), "\x00") {
		if strings.HasPrefix(name, attributePrefix) || strings.HasPrefix(name, formerPrefix) {
			ours = append(ours, name)
		}
	}
	return ours
}
