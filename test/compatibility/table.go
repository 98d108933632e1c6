// SPDX-License-Identifier: Apache-2.0

package compatibility

import "github.com/jackfield/jackfield/test/e2e/node"

// Features returns the rows of the tables.
func Features() []Feature {
	return []Feature{
		{Name: "CDI device: node, mount, environment, hook", Tests: "TestPodGetsCDIDevice",
			Other: onNRI("TestCDIDeviceReachesTheSpec")},
		{Name: "vhost-user and memif sockets", Tests: "TestPodConnectsToSockets",
			Other: onNRI("TestSocketsReachTheSpec")},
		{Name: "a restart of the vswitch under a running container",
			Tests: "TestRunningContainerSurvivesVswitchRestart", Other: onNRI("")},
		{Name: "sockets for containers that do not run as root", Tests: "TestRuntimeReportsContainerUser",
			Other: map[node.Generation]Cell{
				node.V1: {Mark: "✓ [1]", Tests: "TestNonRootContainerUsesSocket"},
				node.V2: {Mark: "✓ [1]", Tests: "TestNonRootContainerUsesSocket"},
				NRI:     {Mark: "untested"}}},
		{Name: "PCI and vDPA devices of the kubelet's allocation", Tests: "TestDeviceInfoOfEveryType",
			Other: onNRI("TestDevicesAllocatedCrosswiseReachTheirContainers")},
		{Name: "several pools of a device plugin", Tests: "TestSeveralPools",
			Other: onNRI("TestSeveralPools")},
		{Name: "no change of pods without requests", Tests: "TestContainerWithoutRequestIsUnchanged",
			Other: onNRI("TestPodWithoutRequestsIsUntouched")},
		{Name: "refusals in `kubectl describe pod`", Tests: "TestKubeletSeesEachRefusal",
			Other: onNRI("TestRefusalsNameRequestRuleAndRemedy")},
		{Name: "a restart of the runtime", Tests: "TestRuntimeRestarts",
			Other: onNRI("TestReconnectAfterTheRuntimeRestarts")},
		{Name: "a plugin that the runtime starts", Tests: "TestRuntimeStartsPlugin",
			Other: map[node.Generation]Cell{node.V1: {Mark: "✓ [4]"}, NRI: {Mark: "untested"}}},
		{Name: "the container image of the DaemonSet", Tests: "TestImageRunsAsDaemonSet",
			Other: map[node.Generation]Cell{node.CRIO: {Mark: "✓ [7]"}, node.CRIOCrun: {Mark: "✓ [7]"}, NRI: {Mark: "–"}}},
		{Name: "the plugin with four capabilities", Tests: "TestLeastPrivilege",
			Other: map[node.Generation]Cell{
				node.CRIO:     {Tests: "TestEachCapabilityIsNecessary"},
				node.CRIOCrun: {Tests: "TestImageRunsAsDaemonSet"},
				NRI:           {Mark: "–"}}},
		{Name: "hooks.d directories", Tests: "TestHooksDirThroughNRI",
			Other: map[node.Generation]Cell{NRI: {Mark: "untested"}}},
		{Name: "DPDK applications exchange packets", Tests: "TestPacketsPassEveryKindOfSocket",
			Other: map[node.Generation]Cell{
				node.V24:      {Tests: "TestNetworkServesPodFromADDToDEL"},
				node.CRIO:     {Tests: "TestNetworkServesPodFromADDToDEL"},
				node.CRIOCrun: {Tests: "TestNetworkServesPodFromADDToDEL"},
				NRI:           {Mark: "–"}}},
		{Name: "user namespaces, also with named sockets",
			Tests: "TestPodWithUserNamespaceGetsAll TestNamedSocketsReachUserNamespaces",
			Other: map[node.Generation]Cell{node.V2: {Mark: "✓ [2]"}, NRI: {Mark: "untested"}}},
		{Name: "`jackfield-cni` in the pods' network", Tests: "TestNetworkServesPodFromADDToDEL", Other: onNRI("")},
		{Name: "`jackfield-hook` alone or beside the plugin", Tests: "TestHookOnCRIO TestHookBesidePluginOnCRIO " +
			"TestKeeperRebindsSocketOnCRIO TestKeeperRemovesDirectoriesOfRemovedPodsOnCRIO",
			Other: map[node.Generation]Cell{
				node.V1: {Mark: "–"}, node.V2: {Mark: "–"}, node.V24: {Mark: "–"}, NRI: {Mark: "–"}}},
		Permissions(),
		NetDevices(),
		Validate(),
		RequiredPlugin(),
		{Name: "a plugin that is killed repeatedly", Tests: "TestPodsWhilePluginIsKilled",
			Other: map[node.Generation]Cell{node.V1: {Mark: "✓ [3]"}, node.V2: {Mark: "✓ [3]"}, NRI: {Mark: "–"}}},
	}
}

// onNRI returns a row's cell of NRI with a test; "" for none.
func onNRI(test string) map[node.Generation]Cell {
	if test == "" {
		return map[node.Generation]Cell{NRI: {Mark: "–"}}
	}
	return map[node.Generation]Cell{NRI: {Tests: test}}
}

// Permissions is exact access to a device, which needs NRI 0.10.
func Permissions() Feature {
	return Feature{Name: "exact `permissions` of a device", Tests: "TestPermissionsAreExact",
		Other: map[node.Generation]Cell{
			node.V1: {Mark: "– [5]", Tests: "TestPermissionsAreExact"},
			node.V2: {Mark: "– [5]", Tests: "TestPermissionsAreExact"},
			NRI:     {Mark: "untested"}}}
}

// NetDevices is the delivery of network devices, which needs NRI 0.11 and an OCI runtime that knows them.
func NetDevices() Feature {
	return Feature{Name: "`netDevices`", Tests: "TestEditsNewerThanNRI",
		Other: map[node.Generation]Cell{
			node.V1:       {Mark: "– [5]"},
			node.V2:       {Mark: "– [5]"},
			node.CRIOCrun: {Mark: "– [6]", Tests: "TestEditsNewerThanNRI"},
			NRI:           {Mark: "untested"}}}
}

// Validate is the policy on adjustments of other plugins, which needs NRI 0.10.
func Validate() Feature {
	return Feature{Name: "policy for other plugins (`validate`)", Tests: "TestPolicyAppliesToOtherPlugin",
		Other: map[node.Generation]Cell{node.V1: {Mark: "–"}, node.V2: {Mark: "–"},
			NRI: {Tests: "TestPolicyAppliesToOtherPlugins"}}}
}

// RequiredPlugin is the refusal of containers while the plugin is missing, which needs NRI 0.10.
func RequiredPlugin() Feature {
	return Feature{Name: "a required plugin",
		Tests: "TestPodRequiresPlugin TestNodeRequiresPlugin",
		Other: map[node.Generation]Cell{
			node.V1: {Mark: "– [3]", Tests: "TestContainerStartsUninjectedWithoutPlugin"},
			node.V2: {Mark: "– [3]", Tests: "TestContainerStartsUninjectedWithoutPlugin"},
			NRI:     {Tests: "TestContainerWithRequiredPluginIsCreated"}}}
}
