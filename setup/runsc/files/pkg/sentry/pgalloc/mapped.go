// Mapped pages: a restore maps the private memory of programs from the checkpoint's pages file instead of reading it, and the first
// write to a page copies it. So a restore costs only the pages that its programs use, and sandboxes of one checkpoint share pages.
package pgalloc

import (
	"fmt"
	"os"
	"sort"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

const (
	// minMappedBytes is the minimum length of a run: each run costs a mapping in the sentry and in every process that uses it.
	minMappedBytes = 128 << 10
	// maxMappedRuns is far below the kernel's limit on mappings per process (65530).
	maxMappedRuns = 16384
)

// mappedRun is a range of a memory file whose pages are mapped from a pages file, beginning at offset off.
type mappedRun struct {
	memmap.FileRange
	off  uint64
	file int
}

// mappedPages describes what a restored memory file maps from pages files. After the load only held changes.
type mappedPages struct {
	// files are the pages files of earlier checkpoints and, last, that of the loaded one. An entry is nil if nothing is mapped from it.
	files []*os.File
	// kept are the pages that the checkpoint left out; seen counts their bytes as loading reaches them. Both are used only during the load.
	kept *keptPages
	seen uint64
	// runs are disjoint and ordered.
	runs []mappedRun
	// held is the number of bytes of the runs that are still in use.
	held atomicbitops.Uint64
	// atMost bounds held by the sandbox's memory limit, since the host does not count mapped pages towards that limit.
	atMost uint64
}

// newMapped begins the list of mapped pages for a load; it returns nil if all pages must be read.
func (f *MemoryFile) newMapped(opts *LoadOpts, kept *keptPages) (*mappedPages, error) {
	reader := fileReader(opts)
	if reader == nil || f.opts.DiskBackedFile || f.opts.ResourceID.Ok() {
		if kept != nil {
			return nil, fmt.Errorf("the checkpoint is kept in pages files, which cannot be mapped here")
		}
		return nil, nil
	}
	var files []*os.File
	if earlier := earlierPages.Swap(nil); earlier != nil {
		files = *earlier
	}
	if err := kept.check(files, uint64(len(f.chunksLoad()))*chunkSize); err != nil {
		return nil, err
	}
	// The reader closes its own descriptor at the end, so the mapping needs a duplicate.
	fd, err := unix.Dup(int(reader.FD()))
	if err != nil {
		return nil, fmt.Errorf("failed to dup the pages file: %w", err)
	}
	atMost := usage.MaximumTotalMemoryBytes
	if atMost == 0 {
		atMost = ^uint64(0)
	}
	p := &mappedPages{files: append(files, os.NewFile(uintptr(fd), "pages")), kept: kept, atMost: atMost}
	if kept != nil {
		for _, run := range kept.runs {
			p.held.Add(run.Length())
		}
	}
	return p, nil
}

func fileReader(opts *LoadOpts) interface{ FD() int32 } {
	if opts.PagesFile == nil {
		return nil
	}
	reader, _ := opts.PagesFile.ar.(interface{ FD() int32 })
	return reader
}

// unkept returns the parts of fr that are in the checkpoint's own pages file, and counts the others as seen.
func (p *mappedPages) unkept(fr memmap.FileRange) []memmap.FileRange {
	if p == nil {
		return []memmap.FileRange{fr}
	}
	parts := p.kept.unkept(fr)
	p.seen += fr.Length()
	for _, part := range parts {
		p.seen -= part.Length()
	}
	return parts
}

// take adds fr, whose pages begin at off, to the runs to map and returns true, or returns false if they must be read instead. Only
// usage.Anonymous qualifies, since that is always private memory of programs.
func (p *mappedPages) take(fr memmap.FileRange, kind usage.MemoryKind, huge bool, off uint64) bool {
	if p == nil || kind != usage.Anonymous || huge || fr.Length() < minMappedBytes || p.held.Load()+fr.Length() > p.atMost {
		return false
	}
	runs := withRun(p.runs, mappedRun{fr, off, len(p.files) - 1})
	if len(runs) > maxMappedRuns-maxKeptRuns {
		return false
	}
	p.runs = runs
	p.held.Add(fr.Length())
	return true
}

// withRun appends a run, or extends the last one if the new one continues it.
func withRun(runs []mappedRun, run mappedRun) []mappedRun {
	if n := len(runs); n > 0 {
		if last := &runs[n-1]; last.End == run.Start && last.file == run.file && last.off+last.Length() == run.off {
			last.End = run.End
			return runs
		}
	}
	return append(runs, run)
}

// setMapped maps the taken and kept runs over the memory file's own pages. The mapping is read-only, so that a write without a
// preceding copy faults instead of damaging a checkpoint.
func (f *MemoryFile) setMapped(p *mappedPages) error {
	if p == nil {
		return nil
	}
	if p.kept != nil {
		expected := uint64(0)
		for _, run := range p.kept.runs {
			expected += run.Length()
		}
		if p.seen != expected {
			return fmt.Errorf("%d bytes are kept, of which the memory file has %d", expected, p.seen)
		}
		p.runs = append(p.runs, p.kept.runs...)
		sort.Slice(p.runs, func(a, b int) bool { return p.runs[a].Start < p.runs[b].Start })
		p.kept = nil
	}
	chunks := f.chunksLoad()
	used := make([]bool, len(p.files))
	for _, run := range p.runs {
		used[run.file] = true
		for fr := run.FileRange; fr.Start < fr.End; {
			part := memmap.FileRange{fr.Start, min(fr.End, (fr.Start/chunkSize+1)*chunkSize)}
			at := chunks[part.Start/chunkSize].mapping + uintptr(part.Start%chunkSize)
			off := run.off + part.Start - run.Start
			if _, _, errno := unix.Syscall6(unix.SYS_MMAP, at, uintptr(part.Length()), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED, p.files[run.file].Fd(), uintptr(off)); errno != 0 {
				return fmt.Errorf("failed to map the pages of %v: %w", part, errno)
			}
			fr.Start = part.End
		}
	}
	for i, file := range p.files {
		if !used[i] {
			file.Close()
			p.files[i] = nil
		}
	}
	if len(p.runs) > 0 {
		f.mapped.Store(p)
	}
	return nil
}

// EachMapped calls fn for every part of fr that is mapped from the pages file.
func (f *MemoryFile) EachMapped(fr memmap.FileRange, fn func(part memmap.FileRange)) {
	f.forEachHostPart(fr, func(part memmap.FileRange, run *mappedRun) error {
		if run != nil {
			fn(part)
		}
		return nil
	})
}

// HasMapped returns true if any page of fr is mapped from the pages file.
func (f *MemoryFile) HasMapped(fr memmap.FileRange) bool {
	p := f.mapped.Load()
	if p == nil {
		return false
	}
	i := p.firstAfter(fr.Start)
	return i < len(p.runs) && p.runs[i].Start < fr.End
}

// IsMapped returns true if the memory file has pages that are mapped from a pages file.
func (f *MemoryFile) IsMapped() bool {
	return f.mapped.Load() != nil
}

// mappedBytes returns the number of bytes in use that are mapped from pages files and absent from the memory file itself.
func (f *MemoryFile) mappedBytes() uint64 {
	if p := f.mapped.Load(); p != nil {
		return p.held.Load()
	}
	return 0
}

// firstAfter returns the index of the first run that ends after off.
func (p *mappedPages) firstAfter(off uint64) int {
	return sort.Search(len(p.runs), func(i int) bool { return p.runs[i].End > off })
}

// forEachHostPart splits fr into consecutive parts and calls fn for each with the run that contains it; nil if no run does.
func (f *MemoryFile) forEachHostPart(fr memmap.FileRange, fn func(part memmap.FileRange, run *mappedRun) error) error {
	p := f.mapped.Load()
	if p == nil {
		return fn(fr, nil)
	}
	for i := p.firstAfter(fr.Start); fr.Start < fr.End; i++ {
		if i == len(p.runs) || p.runs[i].Start >= fr.End {
			return fn(fr, nil)
		}
		run := &p.runs[i]
		if fr.Start < run.Start {
			if err := fn(memmap.FileRange{fr.Start, run.Start}, nil); err != nil {
				return err
			}
			fr.Start = run.Start
		}
		part := memmap.FileRange{fr.Start, min(fr.End, run.End)}
		if err := fn(part, run); err != nil {
			return err
		}
		fr.Start = part.End
	}
	return nil
}

// ForEachDataFD splits fr into consecutive parts and calls fn for each with the descriptor of its file and its offset there.
func (f *MemoryFile) ForEachDataFD(fr memmap.FileRange, fn func(part memmap.FileRange, fd int, off uint64) error) error {
	return f.forEachHostPart(fr, func(part memmap.FileRange, run *mappedRun) error {
		if run != nil {
			return fn(part, int(f.mapped.Load().files[run.file].Fd()), run.off+part.Start-run.Start)
		}
		fd, err := f.DataFD(part)
		if err != nil {
			return err
		}
		return fn(part, fd, part.Start)
	})
}

// wasteOfLocked returns the parts of fr, which has no references left, that may be allocated again. Mapped and sealed pages are not
// among them: reusing them would require a new mapping, and the file has plenty of space.
//
// Preconditions: f.mu must be locked.
func (f *MemoryFile) wasteOfLocked(fr memmap.FileRange) []memmap.FileRange {
	if fr.Start < f.sealedEnd.Load() {
		f.dropSealedLocked(fr)
		return nil
	}
	var waste []memmap.FileRange
	f.forEachHostPart(fr, func(part memmap.FileRange, run *mappedRun) error {
		if run == nil {
			waste = append(waste, part)
			return nil
		}
		f.dropSealedLocked(part)
		f.mapped.Load().held.Add(^(part.Length() - 1))
		return nil
	})
	return waste
}
