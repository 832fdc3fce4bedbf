// Package cnma is the daemon around the core of the C-NMA: it reads the topology file, again whenever the file changes,
// and keeps a session with each C-PS that it tells the topology.
package cnma
