package runner

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// machine remembers what the next snapshot is compared with.
type machine struct{ busy, total float64 }

// measure fills in what /proc tells.
func (m *machine) measure(s *stats) {
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		s.OS = "Linux-" + strings.TrimSpace(string(release)) + "-" + runtime.GOARCH
	}
	s.CPUName, s.CPUCores = cpu()
	m.cpuUsage(s)
	memory(s)
	disk(s)
	network(s)
}

// cpu returns the model's name and the number of physical cores.
func cpu() (string, int) {
	name, physical := "", ""
	cores := map[string]bool{}
	_ = lines("/proc/cpuinfo", func(line string) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "model name":
			name = value
		case "physical id":
			physical = value
		case "core id":
			cores[physical+"/"+value] = true
		}
	})
	return name, len(cores)
}

// cpuUsage compares the ticks since the previous snapshot.
func (m *machine) cpuUsage(s *stats) {
	var busy, total float64
	err := lines("/proc/stat", func(line string) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] != "cpu" {
			return
		}
		for i, f := range fields[1:min(len(fields), 9)] { // guest time is in user time already
			n, _ := strconv.ParseFloat(f, 64)
			total += n
			if i != 3 && i != 4 { // idle, iowait
				busy += n
			}
		}
	})
	if err != nil {
		return
	}
	if d := total - m.total; d > 0 {
		s.CPUUsagePct = rounded(100 * (busy - m.busy) / d)
	}
	m.busy, m.total = busy, total
}

func memory(s *stats) {
	kib := map[string]float64{}
	err := lines("/proc/meminfo", func(line string) {
		if fields := strings.Fields(line); len(fields) >= 2 {
			kib[strings.TrimSuffix(fields[0], ":")], _ = strconv.ParseFloat(fields[1], 64)
		}
	})
	total := kib["MemTotal"]
	if err != nil || total == 0 {
		return
	}
	used := total - kib["MemAvailable"]
	s.MemUsedGB, s.MemTotalGB, s.MemPct = rounded(used/(1<<20)), rounded(total/(1<<20)), rounded(100*used/total)
}

func disk(s *stats) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/", &fs); err != nil || fs.Blocks == 0 {
		return
	}
	block := float64(fs.Bsize)
	used, total := float64(fs.Blocks-fs.Bfree)*block, float64(fs.Blocks)*block
	s.DiskUsedGB, s.DiskTotalGB, s.DiskPct = rounded(used/(1<<30)), rounded(total/(1<<30)), rounded(100*used/total)
}

func network(s *stats) {
	var received, sent float64
	err := lines("/proc/net/dev", func(line string) {
		_, counters, ok := strings.Cut(line, ":")
		if fields := strings.Fields(counters); ok && len(fields) >= 9 {
			r, _ := strconv.ParseFloat(fields[0], 64)
			t, _ := strconv.ParseFloat(fields[8], 64)
			received, sent = received+r, sent+t
		}
	})
	if err == nil {
		s.SentMB, s.ReceivedMB = rounded(sent/(1<<20)), rounded(received/(1<<20))
	}
}

func lines(path string, each func(string)) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		each(sc.Text())
	}
	return sc.Err()
}

func rounded(f float64) *float64 {
	f = math.Round(100*f) / 100
	return &f
}
