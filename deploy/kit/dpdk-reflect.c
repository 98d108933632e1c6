/* SPDX-License-Identifier: Apache-2.0
 *
 * dpdk-reflect sends back each packet that it receives on the container's devices, with the addresses swapped. It is
 * a sample: it shows how a DPDK application finds its devices with jackfield.h. It ends with SIGINT or SIGTERM.
 *
 *	cc -O2 -o dpdk-reflect dpdk-reflect.c $(pkg-config --cflags --libs libdpdk)
 *	dpdk-reflect -l 2 --no-huge -m 128 --no-telemetry
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "jackfield.h"

#define MAX_ARGS 256
#define BURST 32
#define DESCRIPTORS 256

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
	(void)signal;
	stopped = 1;
}

/* Starts EAL with the program's arguments and those of the container's devices. Returns the number of devices. */
static int start_eal(int argc, char **argv)
{
	struct jackfield_devices list;
	const char *args[MAX_ARGS];
	size_t n = 0, expected = 0;
	char error[256];

	if (jackfield_read(NULL, &list, error, sizeof(error)) != 0)
		rte_exit(EXIT_FAILURE, "%s\n", error);
	for (int i = 0; i < argc && n < MAX_ARGS; i++)
		args[n++] = argv[i];
	n += jackfield_eal(&list, args + n, MAX_ARGS - n);
	if (n > MAX_ARGS)
		rte_exit(EXIT_FAILURE, "%zu arguments are too many\n", n);
	for (size_t i = 0; i < list.count; i++)
		expected += list.device[i].eal_count > 0;
	if (rte_eal_init((int)n, (char **)(uintptr_t)args) < 0)
		rte_exit(EXIT_FAILURE, "EAL does not start\n");
	/* EAL continues without a device that fails. */
	if (rte_eth_dev_count_avail() != expected)
		rte_exit(EXIT_FAILURE, "EAL has %u ports, want %zu\n", rte_eth_dev_count_avail(), expected);
	/* The list stays: EAL may keep the arguments. */
	return (int)expected;
}

static void start_port(uint16_t port, struct rte_mempool *pool)
{
	struct rte_eth_conf conf = {0};

	if (rte_eth_dev_configure(port, 1, 1, &conf) != 0 || rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool) != 0 ||
	    rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL) != 0 || rte_eth_dev_start(port) != 0)
		rte_exit(EXIT_FAILURE, "port %u does not start\n", port);
	rte_eth_promiscuous_enable(port); /* not every driver can */
}

static void swap_addresses(struct rte_mbuf *packet)
{
	struct rte_ether_hdr *header = rte_pktmbuf_mtod(packet, struct rte_ether_hdr *);
	struct rte_ether_addr address;

	if (rte_pktmbuf_data_len(packet) < sizeof(*header))
		return;
	rte_ether_addr_copy(&header->dst_addr, &address);
	rte_ether_addr_copy(&header->src_addr, &header->dst_addr);
	rte_ether_addr_copy(&address, &header->src_addr);
}

int main(int argc, char **argv)
{
	struct rte_mbuf *packets[BURST];
	static uint64_t reflected[RTE_MAX_ETHPORTS];
	struct rte_mempool *pool;
	uint16_t port;
	int ports = start_eal(argc, argv);

	pool = rte_pktmbuf_pool_create("packets", 2047, 64, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		rte_exit(EXIT_FAILURE, "no memory for packets\n");
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	RTE_ETH_FOREACH_DEV(port)
		start_port(port, pool);
	printf("reflecting on %d ports\n", ports);
	fflush(stdout);
	while (!stopped) {
		RTE_ETH_FOREACH_DEV(port) {
			uint16_t received = rte_eth_rx_burst(port, 0, packets, BURST);
			for (uint16_t i = 0; i < received; i++)
				swap_addresses(packets[i]);
			uint16_t sent = rte_eth_tx_burst(port, 0, packets, received);
			rte_pktmbuf_free_bulk(packets + sent, received - sent);
			reflected[port] += sent;
		}
	}
	RTE_ETH_FOREACH_DEV(port) {
		printf("port %u: %" PRIu64 " packets\n", port, reflected[port]);
		rte_eth_dev_stop(port);
		rte_eth_dev_close(port);
	}
	fflush(stdout);
	rte_eal_cleanup();
	return 0;
}
