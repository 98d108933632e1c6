// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import "slices"

// fileID is the number of a file in its snapshot, by which the tries name it: they
// hold no pointer then, and the garbage collector does not look into them. A file
// keeps its number as long as it is known, and then another gets it.
type fileID uint32

func (id fileID) key(in *table) string { return in.at(id).key() }

// table is the files of a snapshot by their numbers. Like a trie it is persistent: a
// change copies the list of pieces and the piece with the file.
type table struct {
	owner  edit
	pieces []*tablePiece
}

// tablePieceLen has a piece fill its memory.
const tablePieceLen = 63

type tablePiece struct {
	owner edit
	files [tablePieceLen]*entry
}

func (t *table) at(id fileID) *entry { return t.pieces[id/tablePieceLen].files[id%tablePieceLen] }

// set puts a file in its place; nil takes it out.
func (t *table) set(e edit, id fileID, file *entry) {
	if t.owner != e {
		t.owner, t.pieces = e, slices.Clone(t.pieces)
	}
	i := int(id / tablePieceLen)
	for len(t.pieces) <= i {
		t.pieces = append(t.pieces, &tablePiece{owner: e})
	}
	if p := t.pieces[i]; p.owner != e {
		c := *p
		c.owner, t.pieces[i] = e, &c
	}
	t.pieces[i].files[id%tablePieceLen] = file
}

// fileIDs gives out numbers.
type fileIDs struct {
	free []fileID
	next fileID
}

func (ids *fileIDs) take() fileID {
	if n := len(ids.free); n > 0 {
		id := ids.free[n-1]
		ids.free = ids.free[:n-1]
		return id
	}
	ids.next++
	return ids.next - 1
}

func (ids *fileIDs) giveBack(id fileID) { ids.free = append(ids.free, id) }
