package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// entry is one line of the journal: one handling of one departure.
type entry struct {
	Key       string `json:"key"`
	Number    int64  `json:"number"`
	Fence     string `json:"fence"`
	Partition int64  `json:"partition"`
	Attempt   int64  `json:"attempt"`
	// Start and End are nanoseconds since 1970, by the clock of the node.
	Start int64  `json:"start"`
	End   int64  `json:"end"`
	Pod   string `json:"pod"`
}

// journal is a file that only grows, one JSON object per line.
//
// A line is handed to the operating system before Append returns. That survives
// the death of this process, which is what a journal in an emptyDir can promise
// at all; it is not synced to the disk.
type journal struct {
	mutex sync.Mutex
	file  *os.File
	// size is the length of all complete lines.
	size int64
}

// openJournal continues a journal that is there already. A last line without
// its end was being written when the process died, so it was never answered:
// it goes.
func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot open the journal: %w", err)
	}
	size, err := completeLines(file)
	if err == nil {
		err = file.Truncate(size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot continue the journal %s: %w", path, err), file.Close())
	}
	return &journal{file: file, size: size}, nil
}

// completeLines finds the end of the last complete line.
func completeLines(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	block := make([]byte, 4096)
	for end := info.Size(); end > 0; {
		begin := max(0, end-int64(len(block)))
		part := block[:end-begin]
		if _, err := file.ReadAt(part, begin); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return begin + int64(i) + 1, nil
		}
		end = begin
	}
	return 0, nil
}

// Append writes one line as a whole or, with an error, not at all.
func (j *journal) Append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("cannot write down number %d of %s: %w", e.Number, e.Key, err)
	}
	line = append(line, '\n')
	j.mutex.Lock()
	defer j.mutex.Unlock()
	// Written where the complete lines end, a failed write is overwritten by
	// the next one instead of leaving half a line in the middle.
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		return fmt.Errorf("cannot write down number %d of %s: %w", e.Number, e.Key, err)
	}
	j.size += int64(len(line))
	return nil
}

// Read gives the complete lines that are there now.
func (j *journal) Read() *io.SectionReader {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return io.NewSectionReader(j.file, 0, j.size)
}

// Close ends the journal; nothing may be appended afterwards.
func (j *journal) Close() error {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	// A half written line beyond the last complete one is not part of it.
	return errors.Join(j.file.Truncate(j.size), j.file.Close())
}
