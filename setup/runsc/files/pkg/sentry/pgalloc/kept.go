// Kept pages: a checkpoint does not write the pages that its sandbox still maps from the pages files of earlier checkpoints; it names
// those files instead. So a checkpoint costs only what has changed, and a restore from it maps the same files.
package pgalloc

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sort"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
)

// keptVersion marks metadata that keptPages follow, as little-endian uint64:
//
//	number of bytes that follow, number of files, for each file its index in mappedPages.files of the saved sandbox,
//	for each run: start, end, file, offset        where file is an index into this checkpoint's own list of files
const keptVersion = 3

const (
	// maxKeptFiles bounds the files that a restore opens. The pages of files beyond it, those with the fewest in use, are written again.
	maxKeptFiles = 7
	// maxKeptRuns is half of all runs; the other half is for the checkpoint's own pages file.
	maxKeptRuns  = maxMappedRuns / 2
	keptRunBytes = 4 * 8
	// maxKeptBytes bounds the metadata, whose length comes from a file.
	maxKeptBytes = 8 + maxKeptFiles*8 + maxKeptRuns*keptRunBytes
)

type keptPages struct {
	files []int
	runs  []mappedRun
}

var (
	keepMapped   atomic.Bool
	earlierPages atomic.Pointer[[]*os.File]
)

// KeepMapped sets whether the next checkpoint may leave out pages that are mapped from pages files. Those files must still have names.
func KeepMapped(keep bool) {
	keepMapped.Store(keep)
}

// OfferEarlierPages passes the pages files of earlier checkpoints that the checkpoint to load refers to.
func OfferEarlierPages(files []*os.File) {
	if old := earlierPages.Swap(&files); old != nil {
		closeFiles(*old)
	}
}

func closeFiles(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

// keptLocked returns the pages that the checkpoint leaves out; nil if it must contain all pages. Pages of a file of which less than
// half is in use are written again, so that the files of a checkpoint are at most twice as large as what it needs.
//
// Preconditions: f.mu must be locked.
func (f *MemoryFile) keptLocked(opts *SaveOpts) (*keptPages, error) {
	p := f.mapped.Load()
	if p == nil || opts.PagesFile == nil || opts.ExcludeCommittedZeroPages || !keepMapped.Load() {
		return nil, nil
	}
	runs, held := f.usedRunsLocked(p)
	var files []int
	for i, bytes := range held {
		if bytes == 0 {
			continue
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(p.files[i].Fd()), &stat); err != nil {
			return nil, fmt.Errorf("failed to stat pages file %d: %w", i, err)
		}
		if 2*bytes >= uint64(stat.Size) {
			files = append(files, i)
		}
	}
	sort.Slice(files, func(a, b int) bool { return held[files[a]] > held[files[b]] })
	files = files[:min(len(files), maxKeptFiles)]
	place := make(map[int]int)
	for at, i := range files {
		place[i] = at
	}
	kept := &keptPages{files: files}
	for _, run := range runs {
		if at, ok := place[run.file]; ok && len(kept.runs) < maxKeptRuns {
			kept.runs = append(kept.runs, mappedRun{run.FileRange, run.off, at})
		}
	}
	if len(kept.runs) == 0 {
		return nil, nil
	}
	return kept, nil
}

// usedRunsLocked returns the runs of p that are still in use, and the number of bytes in use per file.
func (f *MemoryFile) usedRunsLocked(p *mappedPages) ([]mappedRun, []uint64) {
	var all, runs []mappedRun
	for maseg := f.memAcct.FirstSegment(); maseg.Ok(); maseg = maseg.NextSegment() {
		if !maseg.ValuePtr().knownCommitted {
			continue
		}
		f.forEachHostPart(maseg.Range(), func(part memmap.FileRange, run *mappedRun) error {
			if run != nil {
				all = withRun(all, mappedRun{part, run.off + part.Start - run.Start, run.file})
			}
			return nil
		})
	}
	held := make([]uint64, len(p.files))
	for _, run := range all {
		if run.Length() >= minMappedBytes {
			runs = append(runs, run)
			held[run.file] += run.Length()
		}
	}
	return runs, held
}

// unkept returns the parts of fr that are not kept, and so are in the checkpoint's own pages file.
func (k *keptPages) unkept(fr memmap.FileRange) []memmap.FileRange {
	if k == nil {
		return []memmap.FileRange{fr}
	}
	var parts []memmap.FileRange
	for i := sort.Search(len(k.runs), func(i int) bool { return k.runs[i].End > fr.Start }); i < len(k.runs) && k.runs[i].Start < fr.End; i++ {
		if run := k.runs[i].FileRange; fr.Start < run.Start {
			parts = append(parts, memmap.FileRange{fr.Start, run.Start})
		}
		fr.Start = min(fr.End, k.runs[i].End)
	}
	if fr.Start < fr.End {
		parts = append(parts, fr)
	}
	return parts
}

// eachUnkept returns a function that calls write for each part of a range that is not kept.
func (k *keptPages) eachUnkept(write func(fr memmap.FileRange)) func(fr memmap.FileRange) {
	return func(fr memmap.FileRange) {
		for _, part := range k.unkept(fr) {
			write(part)
		}
	}
}

func (k *keptPages) mark(pb *pgallocpb.MemoryFileMetadataProto) {
	if k != nil {
		pb.Version = keptVersion
	}
}

func (k *keptPages) writeTo(w io.Writer) error {
	if k == nil {
		return nil
	}
	words := []uint64{uint64(8 + len(k.files)*8 + len(k.runs)*keptRunBytes), uint64(len(k.files))}
	for _, i := range k.files {
		words = append(words, uint64(i))
	}
	for _, run := range k.runs {
		words = append(words, run.Start, run.End, uint64(run.file), run.off)
	}
	var data []byte
	for _, word := range words {
		data = binary.LittleEndian.AppendUint64(data, word)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("failed to write what is kept: %w", err)
	}
	return nil
}

// readKept reads what writeTo wrote; it returns nil if the checkpoint contains all pages itself.
func readKept(r io.Reader, version uint64) (*keptPages, error) {
	if version != keptVersion {
		return nil, nil
	}
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("failed to read what is kept: %w", err)
	}
	length, files := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])
	if length > maxKeptBytes || files > maxKeptFiles || length < 8+files*8 || (length-8-files*8)%keptRunBytes != 0 {
		return nil, fmt.Errorf("%d bytes say what is kept in %d files", length, files)
	}
	data := make([]byte, length-8)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("failed to read what is kept: %w", err)
	}
	k := &keptPages{files: make([]int, files)}
	word := func(at uint64) uint64 { return binary.LittleEndian.Uint64(data[at:]) }
	for at := files * 8; at < length-8; at += keptRunBytes {
		k.runs = append(k.runs, mappedRun{memmap.FileRange{word(at), word(at + 8)}, word(at + 24), int(word(at + 16))})
	}
	return k, nil
}

// check returns an error unless the runs are aligned, disjoint and ordered, and lie within size bytes of memory and within the files.
func (k *keptPages) check(files []*os.File, size uint64) error {
	if k == nil {
		k = &keptPages{}
	}
	if len(files) != len(k.files) {
		return fmt.Errorf("the checkpoint is kept in %d files, and there are %d", len(k.files), len(files))
	}
	sizes := make([]uint64, len(files))
	for i, file := range files {
		var stat unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
			return fmt.Errorf("failed to stat pages file %d: %w", i, err)
		}
		sizes[i] = uint64(stat.Size)
	}
	end := uint64(0)
	for _, run := range k.runs {
		aligned := (run.Start|run.End|run.off)%hostarch.PageSize == 0
		if !aligned || run.Start < end || run.End <= run.Start || run.End > size || run.file < 0 || run.file >= len(files) ||
			run.off > sizes[run.file] || run.Length() > sizes[run.file]-run.off {
			return fmt.Errorf("%v is kept at %#x of file %d, after what ends at %#x, of %#x bytes of memory and files of %#x", run.FileRange, run.off, run.file, end, size, sizes)
		}
		end = run.End
	}
	return nil
}

// BytesToSave estimates the size of the next checkpoint's pages file.
func (f *MemoryFile) BytesToSave() uint64 {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.file.Fd()), &stat); err != nil {
		return 0
	}
	if keepMapped.Load() {
		return uint64(stat.Blocks) * 512
	}
	return uint64(stat.Blocks)*512 + f.mappedBytes()
}
