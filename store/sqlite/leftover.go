package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
)

// The write-ahead log as https://sqlite.org/fileformat2.html#walformat has it.
const (
	logHeader   = 32
	frameHeader = 24
	logMagic    = 0x377f0682 // or with the last bit set, for big-endian sums
	maxPageSize = 65536
)

// leftover is what the log of a server that did not stop cleanly holds. SQLite
// takes its sound beginning over by itself and says nothing about the rest.
type leftover struct {
	bytes   int64
	commits int // that SQLite takes over
	// broken is the byte at which the log stops being sound, -1 when it is
	// sound to its end.
	broken int64
	// lost counts the commits behind that byte.
	lost int
}

// report writes what was found to the log of the program.
func (l leftover) report(log *slog.Logger, path string) {
	switch {
	case l.lost > 0:
		log.Error("the log of the database is damaged, and what was written after the damage is lost; restore a backup if it matters",
			"path", path, "byte", l.broken, "commits_kept", l.commits, "commits_lost", l.lost)
	case l.broken >= 0:
		log.Warn("recovered the database of a server that did not stop cleanly; its last write was not finished",
			"path", path, "byte", l.broken, "commits", l.commits)
	case l.bytes > 0:
		log.Info("recovered the database of a server that did not stop cleanly", "path", path, "commits", l.commits)
	}
}

// ReportLog tells log what the log of a database that nobody has open is like, as
// opening it does. Whatever connects to the database afterwards takes the sound
// part of its log over and drops the rest.
func ReportLog(path string, log *slog.Logger) error {
	l, err := idleLeftover(path)
	if err == nil {
		l.report(log, path)
	}
	return err
}

// idleLeftover reads the log of a database that no server has open: of one that
// has, it is no leftover, and changes while it is read.
func idleLeftover(path string) (leftover, error) {
	none := leftover{broken: -1}
	path, err := realPath(path)
	if err != nil {
		return none, err
	}
	if _, err := os.Stat(path + "-wal"); err != nil {
		return none, nil //nolint:nilerr // there is no log
	}
	lock, err := lockDatabase(path)
	if err != nil {
		return none, nil //nolint:nilerr // a server has it open, or the disk cannot be written
	}
	l, err := findLeftover(path)
	return l, errors.Join(err, lock.release())
}

// findLeftover reads the log beside a database, which must not be open.
func findLeftover(path string) (l leftover, err error) {
	l.broken = -1
	f, err := os.Open(path + "-wal")
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return l, err
	}
	l.bytes = info.Size()
	return l, l.read(bufio.NewReaderSize(f, 1<<20))
}

func (l *leftover) read(r io.Reader) error {
	if l.bytes == 0 {
		return nil
	}
	head := make([]byte, logHeader)
	if whole, err := readFull(r, head); err != nil || !whole {
		l.broken = 0 // a header that was not written to its end: nothing follows it
		return err
	}
	magic := binary.BigEndian.Uint32(head)
	sums := checksum{order: binary.LittleEndian}
	if magic&1 != 0 {
		sums.order = binary.BigEndian
	}
	sums.add(head[:24])
	page := binary.BigEndian.Uint32(head[8:])
	if magic&^1 != logMagic || !sums.equal(head[24:]) || page < 512 || page > maxPageSize {
		l.broken = 0
		if magic&^1 != logMagic || page < 512 || page > maxPageSize {
			page = 4096 // which databases of ours have
		}
	}
	frame := make([]byte, frameHeader+page)
	salts := head[16:24]
	older := int64(-1) // the first frame that seems left from before the log began anew
	for at := int64(logHeader); ; at += int64(len(frame)) {
		whole, err := readFull(r, frame)
		if err != nil {
			return err
		}
		if !whole {
			if l.broken < 0 && older < 0 && at < l.bytes {
				l.broken = at
			}
			return nil
		}
		if string(frame[8:16]) != string(salts) {
			if older < 0 {
				older = at
			}
			continue
		}
		if l.broken < 0 && older >= 0 { // it was not older after all
			l.broken = older
		}
		if l.broken < 0 {
			sums.add(frame[:8])
			sums.add(frame[frameHeader:])
			if !sums.equal(frame[16:]) {
				l.broken = at
			}
		}
		switch commits := binary.BigEndian.Uint32(frame[4:]) != 0; {
		case commits && l.broken < 0:
			l.commits++
		case commits:
			l.lost++
		}
	}
}

// readFull fills b; whole is false when the end comes first.
func readFull(r io.Reader, b []byte) (whole bool, err error) {
	_, err = io.ReadFull(r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return err == nil, err
}

// checksum is the running sum of a log.
type checksum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

func (c *checksum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		c.s0 += c.order.Uint32(b) + c.s1
		c.s1 += c.order.Uint32(b[4:]) + c.s0
	}
}

func (c *checksum) equal(b []byte) bool {
	return binary.BigEndian.Uint32(b) == c.s0 && binary.BigEndian.Uint32(b[4:]) == c.s1
}
