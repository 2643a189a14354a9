package files

// Writes the archive of a tree, with pax records before each header, so that ustar's limits for names, sizes and times do not apply.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const (
	kindFile      = '0'
	kindHardLink  = '1'
	kindLink      = '2'
	kindDirectory = '5'
	kindSpecial   = '6' // a pipe, socket or device; it is included by name, so that the client can refuse it

	archiveBlock = 512
	// A shorter hole is not worth a range; zeros are searched in steps of this size, too.
	holeBytes = 64 << 10
	// The map of a file's ranges is kept in memory and precedes its content.
	maxRanges = 1 << 16
	// In plans, this record holds the size of a file whose content is left out.
	plannedSizeRecord = "SVC.size"
	// In a last record, it says why the archive ends early.
	errorRecord = "SVC.error"
)

type attribute struct {
	name  string
	value []byte
}

// dataRange is a part of a file that is not a hole.
type dataRange struct{ offset, size int64 }

type archiveEntry struct {
	path, target string
	kind         byte
	stat         *unix.Stat_t
	attributes   []attribute
	data         []dataRange // nil: no holes
	unsized      []byte      // the content of a file that reported no size, as those of /proc do
	planned      bool
}

type archiveWriter struct{ to io.Writer }

func (a archiveWriter) entry(e archiveEntry) error {
	name := e.path
	if e.kind == kindDirectory && !strings.HasSuffix(name, "/") {
		name += "/"
	}
	var records bytes.Buffer
	record(&records, "path", []byte(name))
	record(&records, "mtime", []byte(archiveTime(e.stat.Mtim)))
	if e.target != "" {
		record(&records, "linkpath", []byte(e.target))
	}
	for _, attribute := range e.attributes {
		record(&records, "SCHILY.xattr."+attribute.name, attribute.value)
	}
	size := int64(0)
	switch {
	case e.kind != kindFile:
	case e.planned:
		record(&records, plannedSizeRecord, strconv.AppendInt(nil, e.stat.Size, 10))
	case e.data != nil:
		size = int64(len(sparseMap(e.data)))
		for _, part := range e.data {
			size += part.size
		}
		record(&records, "GNU.sparse.major", []byte("1"))
		record(&records, "GNU.sparse.minor", []byte("0"))
		record(&records, "GNU.sparse.name", []byte(name))
		record(&records, "GNU.sparse.realsize", strconv.AppendInt(nil, e.stat.Size, 10))
	default:
		size = e.stat.Size + int64(len(e.unsized))
	}
	record(&records, "size", strconv.AppendInt(nil, size, 10))
	if err := a.records('x', records.Bytes()); err != nil {
		return err
	}
	return a.write(header("entry", e.kind, e.stat.Mode&0o777, size))
}

func (a archiveWriter) content(ctx context.Context, file *os.File, path string, e archiveEntry) error {
	parts, written := e.data, int64(0)
	if e.unsized != nil {
		if err := a.write(e.unsized); err != nil {
			return err
		}
		return a.pad(int64(len(e.unsized)))
	}
	if parts == nil {
		parts = []dataRange{{0, e.stat.Size}}
	} else {
		head := sparseMap(parts)
		written = int64(len(head))
		if err := a.write(head); err != nil {
			return err
		}
	}
	chunk := make([]byte, min(copyBytes, max(e.stat.Size, 1)))
	for _, part := range parts {
		for at, end := part.offset, part.offset+part.size; at < end; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := file.ReadAt(chunk[:min(int64(len(chunk)), end-at)], at)
			if n > 0 {
				if err := a.write(chunk[:n]); err != nil {
					return err
				}
				at += int64(n)
				written += int64(n)
			}
			if err == io.EOF && at < end {
				return failure.New(failure.FailedPrecondition, "'%s' became shorter while it was read", path)
			}
			if err != nil && err != io.EOF {
				return err
			}
		}
	}
	return a.pad(written)
}

func (a archiveWriter) end() error { return a.write(make([]byte, 2*archiveBlock)) }

func (a archiveWriter) failed(message string) error {
	var records bytes.Buffer
	record(&records, errorRecord, []byte(message))
	return a.records('g', records.Bytes())
}

func (a archiveWriter) records(kind byte, body []byte) error {
	if err := a.write(header("records", kind, 0o644, int64(len(body)))); err != nil {
		return err
	}
	if err := a.write(body); err != nil {
		return err
	}
	return a.pad(int64(len(body)))
}

func (a archiveWriter) pad(written int64) error {
	return a.write(make([]byte, (archiveBlock-written%archiveBlock)%archiveBlock))
}

func (a archiveWriter) write(data []byte) error {
	_, err := a.to.Write(data)
	return err
}

// record formats "LENGTH key=value\n", where LENGTH includes its own digits.
func record(to *bytes.Buffer, key string, value []byte) {
	rest := len(key) + len(value) + 3
	length := rest + len(strconv.Itoa(rest))
	length = rest + len(strconv.Itoa(length))
	fmt.Fprintf(to, "%d %s=", length, key)
	to.Write(value)
	to.WriteByte('\n')
}

func header(name string, kind byte, mode uint32, size int64) []byte {
	block := make([]byte, archiveBlock)
	copy(block, name)
	copy(block[100:], fmt.Sprintf("%07o\x000000000\x000000000\x00", mode))
	// A size of more than eleven octal digits is only in the record.
	if size >= 1<<33 {
		size = 0
	}
	copy(block[124:], fmt.Sprintf("%011o\x0000000000000\x00        ", size))
	block[156] = kind
	copy(block[257:], "ustar\x0000")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	return block
}

// archiveTime formats all nine digits; before 1970 the fraction has the sign of the seconds.
func archiveTime(at unix.Timespec) string {
	seconds, nanoseconds, sign := at.Sec, at.Nsec, ""
	if seconds < 0 && nanoseconds > 0 {
		seconds, nanoseconds = seconds+1, 1_000_000_000-nanoseconds
	}
	if seconds < 0 || (at.Sec < 0 && seconds == 0) {
		seconds, sign = -seconds, "-"
	}
	return fmt.Sprintf("%s%d.%09d", sign, seconds, nanoseconds)
}

// sparseMap precedes the data of a file with holes, in whole blocks.
func sparseMap(parts []dataRange) []byte {
	text := strconv.AppendInt(nil, int64(len(parts)), 10)
	for _, part := range parts {
		text = append(text, '\n')
		text = strconv.AppendInt(text, part.offset, 10)
		text = append(text, '\n')
		text = strconv.AppendInt(text, part.size, 10)
	}
	text = append(text, '\n')
	return append(text, make([]byte, (archiveBlock-len(text)%archiveBlock)%archiveBlock)...)
}

// dataRanges returns nil for a file without holes. The last range ends at the file's size, even if the range is empty.
func dataRanges(file *os.File, size int64) ([]dataRange, error) {
	if size < holeBytes {
		return nil, nil
	}
	parts, err := seekRanges(int(file.Fd()), size)
	if err == unix.EINVAL {
		// A sandbox's kernel may be unable to report holes; then runs of zeros count as holes.
		parts, err = scanRanges(file, size)
	}
	if err != nil || (len(parts) == 1 && parts[0] == dataRange{0, size}) {
		return nil, err
	}
	if len(parts) == 0 || parts[len(parts)-1].offset+parts[len(parts)-1].size < size {
		parts = append(parts, dataRange{size, 0})
	}
	return parts, nil
}

func seekRanges(fd int, size int64) ([]dataRange, error) {
	var parts []dataRange
	for at := int64(0); at < size; {
		start, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break
		}
		if err != nil {
			return nil, err
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if start >= size {
			break
		}
		parts = joinRange(parts, start, min(end, size), size)
		at = end
	}
	return parts, nil
}

var zeros [holeBytes]byte

func scanRanges(file *os.File, size int64) ([]dataRange, error) {
	var parts []dataRange
	chunk := make([]byte, holeBytes)
	for at := int64(0); at < size; at += holeBytes {
		n, err := file.ReadAt(chunk, at)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if n == 0 {
			break // It became shorter; the copy will report that.
		}
		if !bytes.Equal(chunk[:n], zeros[:n]) {
			parts = joinRange(parts, at, min(at+int64(n), size), size)
		}
	}
	return parts, nil
}

func joinRange(parts []dataRange, start, end, size int64) []dataRange {
	if len(parts) > 0 {
		last := &parts[len(parts)-1]
		if len(parts) == maxRanges {
			last.size = size - last.offset
			return parts
		}
		if last.offset+last.size == start {
			last.size = end - last.offset
			return parts
		}
	}
	return append(parts, dataRange{start, end - start})
}
