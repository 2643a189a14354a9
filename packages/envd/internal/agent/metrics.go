package agent

// GET /metrics: the sandbox's resource usage, measured on request; nothing runs between requests.

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const (
	clockTicks = 100 // USER_HZ: fixed on every architecture Go runs on
	// A reading sooner than this returns the previous percentage, since the counters tick every 10 ms.
	minInterval = 100 * time.Millisecond
)

type usage struct {
	Timestamp  int64   `json:"ts"`
	CPUCount   int     `json:"cpu_count"`
	CPUUsedPct float64 `json:"cpu_used_pct"`
	MemTotal   uint64  `json:"mem_total"`
	MemUsed    uint64  `json:"mem_used"`
	MemCache   uint64  `json:"mem_cache"`
	DiskTotal  uint64  `json:"disk_total"`
	DiskUsed   uint64  `json:"disk_used"`
}

type meter struct {
	root    string
	mu      sync.Mutex
	at      time.Time
	cpu     time.Duration
	percent float64
}

func newMeter(root string) *meter {
	return &meter{root: root, at: time.Now(), cpu: cpuTime()}
}

func (m *meter) read() (*usage, error) {
	used := &usage{Timestamp: time.Now().Unix(), CPUCount: runtime.NumCPU(), CPUUsedPct: m.cpuPercent()}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, failure.New(failure.Internal, "cannot read the memory in use: %w", err)
	}
	field := meminfo(string(memory))
	available, known := field["MemAvailable"]
	if !known {
		available = field["MemFree"] + field["Cached"]
	}
	used.MemTotal, used.MemCache = field["MemTotal"], field["Cached"]
	used.MemUsed = used.MemTotal - min(available, used.MemTotal)
	var disk unix.Statfs_t
	if err := unix.Statfs(m.root, &disk); err != nil {
		return nil, failure.New(failure.Internal, "cannot measure the disk at '%s': %w", m.root, err)
	}
	used.DiskTotal = disk.Blocks * uint64(disk.Bsize)
	used.DiskUsed = (disk.Blocks - min(disk.Bfree, disk.Blocks)) * uint64(disk.Bsize)
	return used, nil
}

func meminfo(text string) map[string]uint64 {
	field := map[string]uint64{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if kib, err := strconv.ParseUint(words[1], 10, 64); err == nil {
			field[strings.TrimSuffix(words[0], ":")] = kib << 10
		}
	}
	return field
}

// cpuPercent returns the share of all processors that was used since the last reading, 0 to 100.
func (m *meter) cpuPercent() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	passed := now.Sub(m.at)
	if passed < minInterval {
		return m.percent
	}
	cpu := cpuTime()
	share := 100 * float64(cpu-m.cpu) / float64(passed) / float64(runtime.NumCPU())
	m.percent = float64(int(100*min(max(share, 0), 100)+0.5)) / 100
	m.at, m.cpu = now, cpu
	return m.percent
}

// cpuTime reads /proc/stat if the kernel fills it in; gVisor leaves zeros, so there the times of all processes are added up.
func cpuTime() time.Duration {
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		line, _, _ := strings.Cut(string(text), "\n")
		if ticks := busyTicks(strings.Fields(line)); ticks > 0 {
			return ticks * time.Second / clockTicks
		}
	}
	entries, _ := os.ReadDir("/proc")
	var ticks time.Duration
	for _, entry := range entries {
		if entry.Name()[0] < '0' || entry.Name()[0] > '9' {
			continue
		}
		if text, err := os.ReadFile("/proc/" + entry.Name() + "/stat"); err == nil {
			ticks += processTicks(string(text))
		}
	}
	return ticks * time.Second / clockTicks
}

// busyTicks adds user, nice and system, skips idle and iowait, and adds irq, softirq and steal.
func busyTicks(words []string) time.Duration {
	var busy time.Duration
	for i, word := range words {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		ticks, _ := strconv.ParseInt(word, 10, 64)
		busy += time.Duration(ticks)
	}
	return busy
}

// processTicks returns the process's own time and that of reaped children, which appears nowhere else.
func processTicks(stat string) time.Duration {
	_, rest, _ := strings.Cut(stat[max(strings.LastIndexByte(stat, ')'), 0):], " ")
	words := strings.Fields(rest)
	const firstTime, lastTime = 11, 14 // utime, stime, cutime, cstime after pid and name
	var sum time.Duration
	for i := firstTime; i <= lastTime && i < len(words); i++ {
		ticks, _ := strconv.ParseInt(words[i], 10, 64)
		sum += time.Duration(ticks)
	}
	return sum
}
