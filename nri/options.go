// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Options configure a Plugin. The zero value is a plugin on this host with the default configuration.
type Options struct {
	Host        hostfs.Root
	Config      *config.Config // nil stands for config.Default
	ConfigGiven bool           // the configuration is given by name: the runtime's does not replace it
	Socket      string         // NRI socket; "" stands for NRI's default
	Index       string         // two digits: the plugin's place in the order
	IndexInEnv  bool           // Index is from the environment, which the NRI library reads itself
	Name        string
	// Inherited means that the runtime started the plugin and the connection is an inherited descriptor. The
	// plugin cannot connect again.
	Inherited bool
	// SpecDirs, when not nil, replace the configuration's.
	SpecDirs []string
	// ConfigFile, when not empty, is read again whenever it changes, below ConfigHost.
	ConfigFile string
	// ConfigName is the name of the configuration in messages; "" stands for its file.
	ConfigName string
	ConfigHost hostfs.Root
	// ConfigCopy, when not empty, is the file that receives a copy of each configuration that comes into force.
	ConfigCopy string
	// ConfigFault, when not nil, is why ConfigFile cannot be used: Config is from ConfigCopy.
	ConfigFault error
}
