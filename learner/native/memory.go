package native

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// memory remembers which tokens were sampled behind which prompt, so that the
// next turn of a conversation can repeat them exactly. It holds a bounded
// number of completions and forgets the longest unused first.
type memory struct {
	limit int

	mu    sync.Mutex
	byKey map[memoryKey]*list.Element
	order *list.List // of *memoryEntry, the latest used first
}

// memoryKey is a digest of a prompt and of the message that answered it.
type memoryKey [sha256.Size]byte

type memoryEntry struct {
	key memoryKey
	ids []int32
}

func newMemory(limit int) *memory {
	return &memory{limit: limit, byKey: map[memoryKey]*list.Element{}, order: list.New()}
}

func keyOf(prompt []int32, message string) memoryKey {
	b := make([]byte, 0, 4*len(prompt)+4+len(message))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(prompt)))
	for _, id := range prompt {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return sha256.Sum256(append(b, message...))
}

// put remembers that ids were sampled behind a prompt and were shown to the
// client as each of the messages.
func (m *memory) put(prompt, ids []int32, messages ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range messages {
		k := keyOf(prompt, message)
		if e, ok := m.byKey[k]; ok {
			e.Value.(*memoryEntry).ids = ids
			m.order.MoveToFront(e)
			continue
		}
		m.byKey[k] = m.order.PushFront(&memoryEntry{k, ids})
		if m.order.Len() > m.limit {
			last := m.order.Back()
			m.order.Remove(last)
			delete(m.byKey, last.Value.(*memoryEntry).key)
		}
	}
}

// get returns the ids that a message behind a prompt was sampled as.
func (m *memory) get(prompt []int32, message string) ([]int32, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.byKey[keyOf(prompt, message)]
	if !ok {
		return nil, false
	}
	m.order.MoveToFront(e)
	return e.Value.(*memoryEntry).ids, true
}
