/* SPDX-License-Identifier: Apache-2.0
 *
 * traffic sends numbered packets at a constant rate, or prints when numbered packets arrive. It has one port, which it
 * connects again as an application does: it reads the link state, and does what the driver needs while there is no
 * link.
 *
 *	traffic EAL-ARGUMENTS --vdev=DEVICE -- send RATE
 *	traffic EAL-ARGUMENTS --vdev=DEVICE -- receive
 *
 * Numbers follow the clock: a packet that cannot be sent at its time is lost. The receiver prints
 *
 *	gap NUMBER TIME COUNT NUMBER TIME   the packets before and after a pause, and the count before the pause
 *	at NUMBER TIME COUNT                the last packet, every tenth of a second in which packets arrive
 *
 * with times of CLOCK_MONOTONIC in nanoseconds.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#define BURST 32
#define DESCRIPTORS 256
#define MILLISECOND UINT64_C(1000000)
#define SECOND (1000 * MILLISECOND)
#define PAUSE (100 * MILLISECOND)      /* between two packets, of which the receiver reports more */
#define LINK_PERIOD (20 * MILLISECOND) /* between two readings of the link state */
#define RETRY_PERIOD (100 * MILLISECOND)
#define HANDSHAKE (1 * SECOND)	     /* of memif, until there is a link */
#define SERVER_PATIENCE (2 * SECOND) /* for the other side to connect again */
#define ETHERTYPE 0x88b5	     /* for local experiments */

struct numbered {
	struct rte_ether_hdr header;
	uint64_t number;
	char padding[40];
};

static char device[64];		   /* name of the virtual device */
static const char *arguments = ""; /* of the device */
static uint16_t port;
static bool attached = true;
static struct rte_mempool *pool;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static int start_port(void)
{
	struct rte_eth_conf conf = {0};

	if (rte_eth_dev_configure(port, 1, 1, &conf) != 0 ||
	    rte_eth_rx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL, pool) != 0 ||
	    rte_eth_tx_queue_setup(port, 0, DESCRIPTORS, SOCKET_ID_ANY, NULL) != 0)
		return -1;
	return rte_eth_dev_start(port);
}

static bool linked(void)
{
	struct rte_eth_link link;

	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

/* Removes the virtual device and adds it again. */
static void attach_again(void)
{
	if (attached) {
		rte_eth_dev_stop(port);
		if (rte_eal_hotplug_remove("vdev", device) != 0)
			return;
		attached = false;
	}
	if (rte_eal_hotplug_add("vdev", device, arguments) != 0)
		return;
	if (rte_eth_dev_get_port_by_name(device, &port) != 0)
		rte_exit(EXIT_FAILURE, "no port after the device was added\n");
	attached = true;
	start_port();
}

/* Connects as the driver needs it. Returns when to try next. */
static uint64_t connect_again(uint64_t down_since, uint64_t time)
{
	if (strncmp(device, "net_memif", 9) == 0) {
		/* As a client it connects when its port starts, and another start would interrupt the handshake. */
		rte_eth_dev_stop(port);
		return rte_eth_dev_start(port) == 0 ? now() + HANDSHAKE : now() + RETRY_PERIOD;
	}
	/* As a server, virtio-user accepts a connection when the link state is read. */
	if (strstr(arguments, "server=1") == NULL || time - down_since > SERVER_PATIENCE)
		attach_again();
	return now() + RETRY_PERIOD;
}

/* Reads the link state and connects again if there is no link. */
static void keep_connected(uint64_t time)
{
	static uint64_t next_reading, next_retry, down_since;

	if (time < next_reading)
		return;
	next_reading = time + LINK_PERIOD;
	if (next_retry == 0)
		next_retry = time + HANDSHAKE;
	if (attached && linked()) {
		down_since = 0;
		return;
	}
	if (down_since == 0)
		down_since = time;
	if (time < next_retry)
		return;
	next_retry = connect_again(down_since, time);
}

static uint16_t fill(struct rte_mbuf **packets, uint64_t number)
{
	struct numbered *p;
	struct rte_mbuf *packet = rte_pktmbuf_alloc(pool);

	if (packet == NULL)
		return 0;
	p = (struct numbered *)rte_pktmbuf_append(packet, sizeof(*p));
	if (p == NULL)
		rte_exit(EXIT_FAILURE, "a packet does not fit into its buffer\n");
	memset(p, 0, sizeof(*p));
	/* The switch does not know the receiver and floods the bridge, also after it forgot all addresses. */
	p->header.dst_addr.addr_bytes[0] = 2;
	p->header.src_addr.addr_bytes[0] = 2;
	p->header.src_addr.addr_bytes[5] = 1;
	p->header.ether_type = rte_cpu_to_be_16(ETHERTYPE);
	p->number = number;
	packets[0] = packet;
	return 1;
}

/* Sends the packets whose time has come. */
static void send_due(uint64_t due)
{
	static uint64_t next;
	struct rte_mbuf *packets[BURST];
	uint16_t n = 0;

	if (due > next + BURST)
		next = due - BURST;
	for (; next < due; next++)
		n += fill(packets + n, next);
	if (n > 0) {
		uint16_t sent = attached ? rte_eth_tx_burst(port, 0, packets, n) : 0;

		rte_pktmbuf_free_bulk(packets + sent, n - sent);
	}
}

static void receive(bool print)
{
	static uint64_t number, last, count, next_line;
	struct rte_mbuf *packets[BURST];
	uint16_t received = attached ? rte_eth_rx_burst(port, 0, packets, BURST) : 0;
	uint64_t time = now();

	for (uint16_t i = 0; i < received; i++) {
		struct numbered *p = rte_pktmbuf_mtod(packets[i], struct numbered *);

		if (rte_pktmbuf_data_len(packets[i]) < sizeof(*p) ||
		    p->header.ether_type != rte_cpu_to_be_16(ETHERTYPE))
			continue;
		if (print && time - last > PAUSE)
			printf("gap %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", number, last, count,
			       p->number, time);
		number = p->number;
		last = time;
		count++;
	}
	rte_pktmbuf_free_bulk(packets, received);
	if (print && last != 0 && last >= next_line && time >= next_line) {
		printf("at %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", number, last, count);
		next_line = time + 100 * MILLISECOND;
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const struct timespec rest = {.tv_nsec = 50000};
	uint64_t rate = 0, start;
	int used;

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--vdev=", 7) != 0)
			continue;
		snprintf(device, sizeof(device), "%.*s", (int)strcspn(argv[i] + 7, ","), argv[i] + 7);
		arguments = strdup(argv[i] + 7 + strlen(device) + (argv[i][7 + strlen(device)] == ','));
	}
	used = rte_eal_init(argc, argv);
	if (used < 0)
		rte_exit(EXIT_FAILURE, "EAL does not start\n");
	if (argc - used == 3 && strcmp(argv[used + 1], "send") == 0)
		rate = strtoull(argv[used + 2], NULL, 10);
	else if (argc - used != 2 || strcmp(argv[used + 1], "receive") != 0)
		rte_exit(EXIT_FAILURE, "after --: send RATE, or receive\n");
	pool = rte_pktmbuf_pool_create("packets", 2047, 64, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		rte_exit(EXIT_FAILURE, "no memory for packets\n");
	if (rte_eth_dev_count_avail() != 1 || rte_eth_dev_get_port_by_name(device, &port) != 0 || start_port() != 0)
		rte_exit(EXIT_FAILURE, "no port\n");
	printf("traffic started\n");
	fflush(stdout);
	start = now();
	for (;;) {
		keep_connected(now());
		receive(rate == 0);
		if (rate > 0)
			send_due((now() - start) * rate / SECOND);
		nanosleep(&rest, NULL);
	}
}
