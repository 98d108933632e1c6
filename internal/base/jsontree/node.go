// SPDX-License-Identifier: Apache-2.0

package jsontree

// Kind is the type of a JSON value.
type Kind uint8

// The types of JSON values.
const (
	Null Kind = iota
	Bool
	Number
	Time // only in YAML
	String
	Array
	Object
)

// String is the type's name, with its article, for messages.
func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a time", "a string", "an array", "an object"}[k]
}

// Node is one JSON value. A caller that reads another syntax, such as YAML, may build nodes
// of its own and leave Start and End 0.
type Node struct {
	Kind Kind
	// Key is the member's name where an object holds the value.
	Key string
	// KeyLine and KeyColumn are the place of Key; 0 outside an object.
	KeyLine, KeyColumn int
	// Text is the value of a string, without its escapes, and the literal of a number,
	// boolean or null.
	Text string
	// Line and Column are the place of the value, from 1; Column counts characters.
	Line, Column int
	// Start and End are the value's first byte in the text and the byte after its last.
	Start, End int
	// Children are the elements of an array, or the members of an object, in the order
	// of the text. An object that has a key twice has two children of this key.
	Children []*Node
}

// Member returns the last member of an object that has the given key, which is the one that
// encoding/json uses, or nil.
func (n *Node) Member(key string) *Node {
	if n == nil || n.Kind != Object {
		return nil
	}
	for i := len(n.Children) - 1; i >= 0; i-- {
		if n.Children[i].Key == key {
			return n.Children[i]
		}
	}
	return nil
}
