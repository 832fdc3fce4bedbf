// Package cats is the vocabulary of Computing-Aware Traffic Steering: the identifiers, metrics, states, tuples, paths,
// messages and reasons that every role of Margay shares.
//
// It follows draft-zhangb-cats-centralized-control-plane-00 (cited as "CP") and
// draft-zhangb-cats-csma-implementation-01 (cited as "C-SMA"). The package has values only: no I/O, no clock, no
// goroutine. Units, unless a name says otherwise: computing times in milliseconds, network delays in microseconds,
// rates in kbit/s, loss in parts per million.
package cats
