/* The C interface of the transfer engine, for language bindings. Values and semantics are those of svc/transfer_engine.h. */
#ifndef SVC_TRANSFER_ENGINE_C_H
#define SVC_TRANSFER_ENGINE_C_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct svc_engine svc_engine;

typedef struct {
  int opcode; /* 0 read, 1 write */
  void* source;
  uint64_t target_id;
  uint64_t target_offset;
  uint64_t length;
  int advise_retry_cnt;
} svc_request;

typedef struct {
  int status; /* 0 waiting, 4 completed, 6 failed */
  uint64_t transferred_bytes;
} svc_transfer_status;

typedef struct {
  void* addr;
  uint64_t length;
} svc_buffer;

typedef struct {
  char* name;
  char* msg;
} svc_notify;

/* Returns NULL if init failed; svc_last_error has the reason. rpc_port 0 takes a free one. */
svc_engine* svc_create_engine(const char* metadata_conn_string, const char* local_server_name, const char* ip_or_host_name, uint64_t rpc_port, int auto_discover);
void svc_destroy_engine(svc_engine* engine);
/* The message of the last negative result of this thread. */
const char* svc_last_error(void);
/* Copies host:port and a terminating 0. Returns the length without it, or a negative code if it does not fit. */
int svc_get_local_ip_and_port(svc_engine* engine, char* out, size_t size);
int svc_discover_topology(svc_engine* engine, char* out, size_t size);

int svc_install_transport(svc_engine* engine, const char* proto, const char* priority_matrix);
int svc_uninstall_transport(svc_engine* engine, const char* proto);

int svc_register_local_memory(svc_engine* engine, void* addr, uint64_t length, const char* location, int remote_accessible);
int svc_unregister_local_memory(svc_engine* engine, void* addr);
int svc_register_local_memory_batch(svc_engine* engine, const svc_buffer* buffers, size_t count, const char* location);
int svc_unregister_local_memory_batch(svc_engine* engine, void* const* addresses, size_t count);

uint64_t svc_open_segment(svc_engine* engine, const char* name);
int svc_close_segment(svc_engine* engine, uint64_t segment);
int svc_remove_local_segment(svc_engine* engine, const char* name);
int svc_check_segment_status(svc_engine* engine, uint64_t segment);
int svc_sync_segment_cache(svc_engine* engine, const char* name);

uint64_t svc_allocate_batch_id(svc_engine* engine, size_t size);
/* These functions return 0 or a negative code. */
int svc_submit_transfer(svc_engine* engine, uint64_t batch, const svc_request* requests, size_t count);
int svc_submit_transfer_with_notify(svc_engine* engine, uint64_t batch, const svc_request* requests, size_t count, const char* name, const char* msg);
int svc_get_transfer_status(svc_engine* engine, uint64_t batch, size_t task, svc_transfer_status* status);
int svc_get_batch_transfer_status(svc_engine* engine, uint64_t batch, svc_transfer_status* status);
int svc_wait_batch(svc_engine* engine, uint64_t batch, uint64_t timeout_ms);
int svc_free_batch_id(svc_engine* engine, uint64_t batch);
int svc_transfer_sync(svc_engine* engine, const svc_request* requests, size_t count, uint64_t timeout_ms);

/* Returns `count` notifications, which the caller passes to svc_free_notifies. NULL if there are none. */
svc_notify* svc_get_notifies(svc_engine* engine, size_t* count);
void svc_free_notifies(svc_notify* list, size_t count);
int svc_send_notify(svc_engine* engine, uint64_t segment, const char* name, const char* msg);

#ifdef __cplusplus
}
#endif
#endif
