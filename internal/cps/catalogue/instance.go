package catalogue

import (
	"cmp"

	"github.com/margay-net/margay/cats"
)

// Instance is one service at one service contact instance: the key of the CST and of the slot ledger.
type Instance struct {
	CSID   cats.CSID
	CSCIID cats.CSCIID
}

// String gives "S1 at 198.51.100.11:443".
func (i Instance) String() string { return string(i.CSID) + " at " + string(i.CSCIID) }

// Compare orders by CS-ID, then CSCI-ID.
func (i Instance) Compare(o Instance) int {
	return cmp.Or(cmp.Compare(i.CSID, o.CSID), cmp.Compare(i.CSCIID, o.CSCIID))
}
