// Package docs is the documentation. It has no code: its tests hold the pages against the programs.
package docs
