/* SPDX-License-Identifier: Apache-2.0
 *
 * jackfield.h reads devices.json, in which Jackfield lists a container's devices and sockets.
 * It needs only C99 and the C library. Copy it into your program and include it in one source file.
 *
 *	struct jackfield_devices list;
 *	char error[256];
 *	if (jackfield_read(NULL, &list, error, sizeof(error)) != 0)
 *		return fail(error);
 *	for (size_t i = 0; i < list.count; i++)
 *		puts(list.device[i].socket);
 *	jackfield_free(&list);
 *
 * Texts that the file lacks are "", and numbers are 0. Unknown keys are ignored. A file that is too large,
 * malformed, or of another major version of the Device Information Specification is an error.
 */
#ifndef JACKFIELD_H
#define JACKFIELD_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JACKFIELD_FILE "/var/run/jackfield/devices.json"
#define JACKFIELD_MAX_SIZE (4u << 20) /* of the file, in bytes */
#define JACKFIELD_MAX_DEVICES 4096u
#define JACKFIELD_MAX_DEPTH 64u

struct jackfield_device {
	const char *name;        /* NAMESPACE/NETWORK, CLAIM/REQUEST, socket:NAME, or "" */
	const char *interface;   /* in the pod */
	const char *type;        /* pci, vdpa, vhost-user or memif; "" for a named socket */
	const char *socket;      /* path; an abstract socket has "@" and its name */
	const char *created_by;  /* of the socket: host (connect to it) or application (create it) */
	const char *pci_address; /* of a PCI or vDPA device */
	const char *mac;
	const char *resource; /* extended resource */
	const char *device_id;
	int mtu;
	const char *const *eal; /* arguments of DPDK's EAL */
	size_t eal_count;
};

struct jackfield_devices {
	struct jackfield_device *device;
	size_t count;
	char *text_;        /* all texts */
	const char **args_; /* all arguments */
};

/* ---- The parser. Use the functions at the end of the file. ---- */

struct jackfield_parser_ {
	char *at;
	char *end;
	unsigned depth;
	const char *fault;
	const char **args;
	size_t args_count, args_size;
};

struct jackfield_fields_ {
	struct jackfield_device device;
	const char *version, *pci, *vdpa, *vhost_user, *memif, *named;
	size_t first_arg;
	int has_info;
};

typedef int (*jackfield_member_)(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f);

static int jackfield_fault_(struct jackfield_parser_ *p, const char *fault)
{
	if (p->fault == NULL)
		p->fault = fault;
	return -1;
}

/* Returns the next character after white space, or 0 at the end. */
static int jackfield_peek_(struct jackfield_parser_ *p)
{
	while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
		p->at++;
	return p->at < p->end ? (unsigned char)*p->at : 0;
}

static int jackfield_expect_(struct jackfield_parser_ *p, int c)
{
	if (jackfield_peek_(p) != c)
		return jackfield_fault_(p, "the file is not valid JSON");
	p->at++;
	return 0;
}

static int jackfield_hex_(struct jackfield_parser_ *p, unsigned *code)
{
	int i;
	*code = 0;
	if (p->end - p->at < 4)
		return jackfield_fault_(p, "the file ends within a text");
	for (i = 0; i < 4; i++) {
		unsigned c = (unsigned char)*p->at++;
		unsigned lower = c | 0x20u;
		unsigned digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
		if (digit > 15)
			return jackfield_fault_(p, "an escape in a text is not valid");
		*code = *code << 4 | digit;
	}
	return 0;
}

/* Decodes an escape after its backslash. The result is shorter than the escape, so that it fits in its place. */
static int jackfield_escape_(struct jackfield_parser_ *p, char **out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	unsigned code, low;
	const char *known;
	char c;
	if (p->at >= p->end)
		return jackfield_fault_(p, "the file ends within a text");
	c = *p->at++;
	if (c != 'u') {
		known = c == 0 ? NULL : strchr(from, c);
		if (known == NULL)
			return jackfield_fault_(p, "an escape in a text is not valid");
		*(*out)++ = to[known - from];
		return 0;
	}
	if (jackfield_hex_(p, &code) != 0)
		return -1;
	if (code >= 0xd800 && code < 0xdc00 && p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'u') {
		p->at += 2;
		if (jackfield_hex_(p, &low) != 0)
			return -1;
		if (low < 0xdc00 || low > 0xdfff)
			return jackfield_fault_(p, "an escape in a text is not valid");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	if (code == 0 || (code >= 0xd800 && code < 0xe000))
		return jackfield_fault_(p, code == 0 ? "a text has a NUL character" : "an escape in a text is not valid");
	if (code < 0x80) {
		*(*out)++ = (char)code;
		return 0;
	}
	if (code < 0x800) {
		*(*out)++ = (char)(0xc0 | code >> 6);
	} else {
		if (code < 0x10000) {
			*(*out)++ = (char)(0xe0 | code >> 12);
		} else {
			*(*out)++ = (char)(0xf0 | code >> 18);
			*(*out)++ = (char)(0x80 | (code >> 12 & 0x3f));
		}
		*(*out)++ = (char)(0x80 | (code >> 6 & 0x3f));
	}
	*(*out)++ = (char)(0x80 | (code & 0x3f));
	return 0;
}

/* Parses a text. It is decoded and ended with NUL in its own place. */
static int jackfield_text_(struct jackfield_parser_ *p, const char **text)
{
	char *out;
	if (jackfield_expect_(p, '"') != 0)
		return -1;
	*text = out = p->at;
	for (;;) {
		unsigned char c;
		if (p->at >= p->end)
			return jackfield_fault_(p, "the file ends within a text");
		c = (unsigned char)*p->at++;
		if (c == '"')
			break;
		if (c < 0x20)
			return jackfield_fault_(p, "a text has a control character");
		if (c != '\\')
			*out++ = (char)c;
		else if (jackfield_escape_(p, &out) != 0)
			return -1;
	}
	*out = 0;
	return 0;
}

/* Returns the length of the word or number at p->at, which need not be a valid one. */
static size_t jackfield_word_(const struct jackfield_parser_ *p)
{
	size_t n = 0;
	while (p->at + n < p->end && p->at[n] != 0 && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", p->at[n]) != NULL)
		n++;
	return n;
}

static int jackfield_is_number_(const char *s, size_t n)
{
	size_t i = 0, digits;
	if (i < n && s[i] == '-')
		i++;
	for (digits = i; i < n && s[i] >= '0' && s[i] <= '9'; i++)
		;
	if (i == digits || (s[digits] == '0' && i > digits + 1))
		return 0;
	if (i < n && s[i] == '.') {
		for (digits = ++i; i < n && s[i] >= '0' && s[i] <= '9'; i++)
			;
		if (i == digits)
			return 0;
	}
	if (i < n && (s[i] == 'e' || s[i] == 'E')) {
		i++;
		if (i < n && (s[i] == '+' || s[i] == '-'))
			i++;
		for (digits = i; i < n && s[i] >= '0' && s[i] <= '9'; i++)
			;
		if (i == digits)
			return 0;
	}
	return i == n;
}

/* Skips null and returns 1, or returns 0 at another value. */
static int jackfield_null_(struct jackfield_parser_ *p)
{
	if (jackfield_peek_(p) != 'n' || jackfield_word_(p) != 4 || memcmp(p->at, "null", 4) != 0)
		return 0;
	p->at += 4;
	return 1;
}

static int jackfield_object_(struct jackfield_parser_ *p, jackfield_member_ member, struct jackfield_fields_ *f);

/* Skips a value of any type. */
static int jackfield_skip_(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f)
{
	const char *text;
	size_t n;
	int c = jackfield_peek_(p);
	(void)key;
	(void)f;
	if (c == '"')
		return jackfield_text_(p, &text);
	if (c == '{')
		return jackfield_object_(p, jackfield_skip_, NULL);
	if (c == '[') {
		if (++p->depth > JACKFIELD_MAX_DEPTH)
			return jackfield_fault_(p, "the file is nested too deeply");
		p->at++;
		if (jackfield_peek_(p) != ']') {
			do {
				if (jackfield_skip_(p, NULL, NULL) != 0)
					return -1;
			} while (jackfield_peek_(p) == ',' && p->at++ != NULL);
		}
		p->depth--;
		return jackfield_expect_(p, ']');
	}
	n = jackfield_word_(p);
	if (!(n == 4 && (memcmp(p->at, "true", 4) == 0 || memcmp(p->at, "null", 4) == 0)) && !(n == 5 && memcmp(p->at, "false", 5) == 0) &&
	    !jackfield_is_number_(p->at, n))
		return jackfield_fault_(p, "the file is not valid JSON");
	p->at += n;
	return 0;
}

/* Parses an object and calls member for each of its values. */
static int jackfield_object_(struct jackfield_parser_ *p, jackfield_member_ member, struct jackfield_fields_ *f)
{
	const char *key;
	if (jackfield_peek_(p) != '{')
		return jackfield_fault_(p, "invalid value: must be an object");
	if (++p->depth > JACKFIELD_MAX_DEPTH)
		return jackfield_fault_(p, "the file is nested too deeply");
	p->at++;
	if (jackfield_peek_(p) != '}') {
		do {
			jackfield_peek_(p);
			if (jackfield_text_(p, &key) != 0 || jackfield_expect_(p, ':') != 0 || member(p, key, f) != 0)
				return -1;
		} while (jackfield_peek_(p) == ',' && p->at++ != NULL);
	}
	p->depth--;
	return jackfield_expect_(p, '}');
}

static int jackfield_string_(struct jackfield_parser_ *p, const char **text)
{
	if (jackfield_null_(p))
		return 0;
	if (jackfield_peek_(p) != '"')
		return jackfield_fault_(p, "invalid value: must be a text");
	return jackfield_text_(p, text);
}

static int jackfield_int_(struct jackfield_parser_ *p, int *number)
{
	size_t n, i;
	long value = 0;
	if (jackfield_null_(p))
		return 0;
	jackfield_peek_(p);
	n = jackfield_word_(p);
	i = n > 0 && p->at[0] == '-';
	if (!jackfield_is_number_(p->at, n) || n > 9)
		return jackfield_fault_(p, "invalid value: must be a small integer");
	for (; i < n; i++) {
		if (p->at[i] < '0' || p->at[i] > '9')
			return jackfield_fault_(p, "invalid value: must be a small integer");
		value = value * 10 + (p->at[i] - '0');
	}
	*number = (int)(p->at[0] == '-' ? -value : value);
	p->at += n;
	return 0;
}

static int jackfield_args_(struct jackfield_parser_ *p, struct jackfield_fields_ *f)
{
	f->device.eal_count = 0;
	f->first_arg = p->args_count;
	if (jackfield_null_(p))
		return 0;
	if (jackfield_peek_(p) != '[')
		return jackfield_fault_(p, "invalid value: must be an array");
	p->at++;
	if (jackfield_peek_(p) != ']') {
		do {
			const char *text = "";
			if (jackfield_string_(p, &text) != 0)
				return -1;
			if (p->args_count == p->args_size) {
				size_t size = p->args_size == 0 ? 64 : p->args_size * 2;
				const char **grown = (const char **)realloc((void *)p->args, size * sizeof(*grown));
				if (grown == NULL)
					return jackfield_fault_(p, "out of memory");
				p->args = grown;
				p->args_size = size;
			}
			p->args[p->args_count++] = text;
			f->device.eal_count++;
		} while (jackfield_peek_(p) == ',' && p->at++ != NULL);
	}
	return jackfield_expect_(p, ']');
}

static int jackfield_extension_(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f)
{
	if (strcmp(key, "eal") == 0)
		return jackfield_args_(p, f);
	if (strcmp(key, "socket") == 0)
		return jackfield_string_(p, &f->named);
	if (strcmp(key, "socket-created-by") == 0)
		return jackfield_string_(p, &f->device.created_by);
	if (strcmp(key, "resource") == 0)
		return jackfield_string_(p, &f->device.resource);
	if (strcmp(key, "device-id") == 0)
		return jackfield_string_(p, &f->device.device_id);
	return jackfield_skip_(p, key, f);
}

static int jackfield_pci_(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f)
{
	return strcmp(key, "pci-address") == 0 ? jackfield_string_(p, &f->pci) : jackfield_skip_(p, key, f);
}

static int jackfield_vdpa_(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f)
{
	return strcmp(key, "pci-address") == 0 ? jackfield_string_(p, &f->vdpa) : jackfield_skip_(p, key, f);
}

static int jackfield_vhost_user_(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f)
{
	return strcmp(key, "path") == 0 ? jackfield_string_(p, &f->vhost_user) : jackfield_skip_(p, key, f);
}

static int jackfield_memif_(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f)
{
	return strcmp(key, "path") == 0 ? jackfield_string_(p, &f->memif) : jackfield_skip_(p, key, f);
}

/* Parses an object or null. */
static int jackfield_map_(struct jackfield_parser_ *p, jackfield_member_ member, struct jackfield_fields_ *f)
{
	return jackfield_null_(p) ? 0 : jackfield_object_(p, member, f);
}

static int jackfield_info_(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f)
{
	if (strcmp(key, "type") == 0)
		return jackfield_string_(p, &f->device.type);
	if (strcmp(key, "version") == 0)
		return jackfield_string_(p, &f->version);
	if (strcmp(key, "pci") == 0)
		return jackfield_map_(p, jackfield_pci_, f);
	if (strcmp(key, "vdpa") == 0)
		return jackfield_map_(p, jackfield_vdpa_, f);
	if (strcmp(key, "vhost-user") == 0)
		return jackfield_map_(p, jackfield_vhost_user_, f);
	if (strcmp(key, "memif") == 0)
		return jackfield_map_(p, jackfield_memif_, f);
	return jackfield_skip_(p, key, f);
}

static int jackfield_device_(struct jackfield_parser_ *p, const char *key, struct jackfield_fields_ *f)
{
	if (strcmp(key, "name") == 0)
		return jackfield_string_(p, &f->device.name);
	if (strcmp(key, "interface") == 0)
		return jackfield_string_(p, &f->device.interface);
	if (strcmp(key, "mac") == 0)
		return jackfield_string_(p, &f->device.mac);
	if (strcmp(key, "mtu") == 0)
		return jackfield_int_(p, &f->device.mtu);
	if (strcmp(key, "jackfield") == 0)
		return jackfield_map_(p, jackfield_extension_, f);
	if (strcmp(key, "device-info") == 0) {
		if (jackfield_null_(p))
			return 0;
		f->has_info = 1;
		return jackfield_object_(p, jackfield_info_, f);
	}
	return jackfield_skip_(p, key, f);
}

/* Parses one device. Its arguments are found by their number until all are known. */
static int jackfield_entry_(struct jackfield_parser_ *p, struct jackfield_device *device, size_t *first_arg)
{
	struct jackfield_fields_ f;
	memset(&f, 0, sizeof(f));
	f.device.name = f.device.interface = f.device.type = f.device.socket = f.device.created_by = f.device.pci_address = "";
	f.device.mac = f.device.resource = f.device.device_id = "";
	f.version = f.pci = f.vdpa = f.vhost_user = f.memif = f.named = "";
	if (jackfield_object_(p, jackfield_device_, &f) != 0)
		return -1;
	if (f.has_info && strncmp(f.version, "1.", 2) != 0)
		return jackfield_fault_(p, "unsupported version of a device-info: must be 1.x");
	f.device.socket = f.named;
	if (strcmp(f.device.type, "pci") == 0)
		f.device.pci_address = f.pci;
	else if (strcmp(f.device.type, "vdpa") == 0)
		f.device.pci_address = f.vdpa;
	else if (strcmp(f.device.type, "vhost-user") == 0)
		f.device.socket = f.vhost_user;
	else if (strcmp(f.device.type, "memif") == 0)
		f.device.socket = f.memif;
	*device = f.device;
	*first_arg = f.first_arg;
	return 0;
}

static int jackfield_is_utf8_(const char *text, size_t size)
{
	const unsigned char *s = (const unsigned char *)text, *end = s + size;
	while (s < end) {
		unsigned more = *s < 0x80 ? 0 : *s >= 0xc2 && *s < 0xe0 ? 1 : *s >= 0xe0 && *s < 0xf0 ? 2 : *s >= 0xf0 && *s < 0xf5 ? 3 : 9;
		if (more > (size_t)(end - s) - 1)
			return 0;
		if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) || (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))
			return 0;
		for (s++; more > 0; more--, s++) {
			if ((*s & 0xc0) != 0x80)
				return 0;
		}
	}
	return 1;
}

static int jackfield_array_(struct jackfield_parser_ *p, struct jackfield_devices *list)
{
	size_t *first = NULL, size = 0, i;
	int result = -1;
	if (jackfield_expect_(p, '[') != 0)
		return -1;
	if (jackfield_peek_(p) != ']') {
		do {
			if (list->count == JACKFIELD_MAX_DEVICES) {
				jackfield_fault_(p, "the file has too many devices");
				goto done;
			}
			if (list->count == size) {
				struct jackfield_device *grown;
				size_t *numbers;
				size = size == 0 ? 16 : size * 2;
				grown = (struct jackfield_device *)realloc(list->device, size * sizeof(*grown));
				if (grown != NULL)
					list->device = grown;
				numbers = (size_t *)realloc(first, size * sizeof(*numbers));
				if (numbers != NULL)
					first = numbers;
				if (grown == NULL || numbers == NULL) {
					jackfield_fault_(p, "out of memory");
					goto done;
				}
			}
			jackfield_peek_(p);
			if (jackfield_entry_(p, &list->device[list->count], &first[list->count]) != 0)
				goto done;
			list->count++;
		} while (jackfield_peek_(p) == ',' && p->at++ != NULL);
	}
	if (jackfield_expect_(p, ']') != 0)
		goto done;
	if (jackfield_peek_(p) != 0 || p->at < p->end) {
		jackfield_fault_(p, "the file does not end after the array");
		goto done;
	}
	for (i = 0; i < list->count; i++)
		list->device[i].eal = list->device[i].eal_count > 0 ? p->args + first[i] : NULL;
	result = 0;
done:
	free(first);
	return result;
}

/* ---- The functions for your program. ---- */

/* Frees the memory that jackfield_read has allocated. */
static inline void jackfield_free(struct jackfield_devices *list)
{
	free(list->device);
	free(list->text_);
	free((void *)list->args_);
	memset(list, 0, sizeof(*list));
}

/* Reads a file; NULL is the container's file. Returns 0, or -1 with a message in error. */
static inline int jackfield_read(const char *path, struct jackfield_devices *list, char *error, size_t error_size)
{
	struct jackfield_parser_ p;
	size_t size;
	FILE *f;
	int failed;
	memset(list, 0, sizeof(*list));
	memset(&p, 0, sizeof(p));
	if (path == NULL)
		path = getenv("JACKFIELD_DEVICES_FILE");
	if (path == NULL || *path == 0)
		path = JACKFIELD_FILE;
	f = fopen(path, "rb");
	if (f == NULL) {
		snprintf(error, error_size, "cannot open %s", path);
		return -1;
	}
	list->text_ = (char *)malloc(JACKFIELD_MAX_SIZE + 1);
	if (list->text_ == NULL) {
		fclose(f);
		snprintf(error, error_size, "read %s: out of memory", path);
		return -1;
	}
	size = fread(list->text_, 1, JACKFIELD_MAX_SIZE + 1, f);
	failed = ferror(f);
	fclose(f);
	p.at = list->text_;
	p.end = list->text_ + size;
	if (failed)
		jackfield_fault_(&p, "the file cannot be read");
	else if (size > JACKFIELD_MAX_SIZE)
		jackfield_fault_(&p, "the file is too large");
	else if (!jackfield_is_utf8_(list->text_, size))
		jackfield_fault_(&p, "the file is not valid UTF-8");
	else
		jackfield_array_(&p, list);
	list->args_ = p.args;
	if (p.fault == NULL)
		return 0;
	snprintf(error, error_size, "read %s: at byte %lu: %s", path, (unsigned long)(p.at - list->text_), p.fault);
	jackfield_free(list);
	return -1;
}

/* Returns the device with an interface or name, or NULL. The name of a named socket is socket:NAME. */
static inline const struct jackfield_device *jackfield_find(const struct jackfield_devices *list, const char *name)
{
	size_t i;
	for (i = 0; i < list->count && *name != 0; i++) {
		if (strcmp(list->device[i].interface, name) == 0 || strcmp(list->device[i].name, name) == 0)
			return &list->device[i];
	}
	return NULL;
}

/* Returns the number of EAL arguments of all devices, and writes the first size of them to args. Without a PCI
 * device they include --no-pci, so that EAL takes none. */
static inline size_t jackfield_eal(const struct jackfield_devices *list, const char **args, size_t size)
{
	size_t i, j, n = 0;
	int pci = 0;
	for (i = 0; i < list->count; i++) {
		for (j = 0; j < list->device[i].eal_count; j++, n++) {
			if (strcmp(list->device[i].eal[j], "-a") == 0)
				pci = 1;
			if (n < size)
				args[n] = list->device[i].eal[j];
		}
	}
	if (!pci) {
		if (n < size)
			args[n] = "--no-pci";
		n++;
	}
	return n;
}

#endif
