package testenv

import (
	"bytes"
	"sync"
)

// Buffer takes what one goroutine writes, such as a log, while others read it. The zero Buffer is empty.
type Buffer struct {
	mutex sync.Mutex // guards bytes
	bytes bytes.Buffer
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.bytes.Write(p)
}

// String gives what was written so far.
func (b *Buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.bytes.String()
}
