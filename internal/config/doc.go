// Package config loads the YAML file of a role, strictly, and reloads it all or nothing.
//
// A file is decoded into a struct by its `yaml:"key"` tags. A key that no field has is refused, a key that is written
// twice is refused, and so is a missing key, unless its field's tag says omitempty. Anchors, aliases, tags, merge keys
// and further documents are refused. Every fault is reported at once, each with its line, its column and an excerpt.
//
// A struct anywhere in the configuration may have two methods on its pointer:
//
//	Defaults()            // sets what holds where the file is silent; called before its keys are read
//	Validate() []Problem  // finds what the types cannot say; called once all its keys are read without a fault
//
// Validate names the offending key by a path that is relative to its struct; the loader finds the line.
package config
