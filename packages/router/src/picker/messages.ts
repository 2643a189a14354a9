// The messages of Envoy's external processing (ext_proc) and of gRPC's health checks, as far as the picker reads and writes them: names, types
// and numbers of fields. Tests exchange them with the published protos in both directions.

const bytes = (id: number) => ({ type: "bytes", id });
const bool = (id: number) => ({ type: "bool", id });
const text = (id: number) => ({ type: "string", id });
const number = (id: number) => ({ type: "int32", id });
const of = (type: string, id: number) => ({ type, id });
const list = (type: string, id: number) => ({ rule: "repeated", type, id });

const struct = {
  Struct: { fields: { fields: { keyType: "string", type: "Value", id: 1 } } },
  Value: {
    oneofs: { kind: { oneof: ["nullValue", "numberValue", "stringValue", "boolValue", "structValue", "listValue"] } },
    fields: {
      nullValue: number(1),
      numberValue: of("double", 2),
      stringValue: text(3),
      boolValue: bool(4),
      structValue: of("Struct", 5),
      listValue: of("ListValue", 6),
    },
  },
  ListValue: { fields: { values: list("Value", 1) } },
};

const processing = {
  ProcessingRequest: {
    oneofs: { request: { oneof: ["requestHeaders", "responseHeaders", "requestBody", "responseBody", "requestTrailers", "responseTrailers"] } },
    fields: {
      requestHeaders: of("HttpHeaders", 2),
      responseHeaders: of("HttpHeaders", 3),
      requestBody: of("HttpBody", 4),
      responseBody: of("HttpBody", 5),
      requestTrailers: of("HttpTrailers", 6),
      responseTrailers: of("HttpTrailers", 7),
      metadataContext: of("Metadata", 8),
    },
  },
  ProcessingResponse: {
    oneofs: {
      response: { oneof: ["requestHeaders", "responseHeaders", "requestBody", "responseBody", "requestTrailers", "responseTrailers", "immediateResponse"] },
    },
    fields: {
      requestHeaders: of("HeadersResponse", 1),
      responseHeaders: of("HeadersResponse", 2),
      requestBody: of("BodyResponse", 3),
      responseBody: of("BodyResponse", 4),
      requestTrailers: of("TrailersResponse", 5),
      responseTrailers: of("TrailersResponse", 6),
      immediateResponse: of("ImmediateResponse", 7),
      dynamicMetadata: of("google.protobuf.Struct", 8),
    },
  },
  HttpHeaders: { fields: { headers: of("HeaderMap", 1), endOfStream: bool(3) } },
  HttpBody: { fields: { body: bytes(1), endOfStream: bool(2) } },
  HttpTrailers: { fields: { trailers: of("HeaderMap", 1) } },
  HeadersResponse: { fields: { response: of("CommonResponse", 1) } },
  BodyResponse: { fields: { response: of("CommonResponse", 1) } },
  TrailersResponse: { fields: { headerMutation: of("HeaderMutation", 1) } },
  CommonResponse: { fields: { headerMutation: of("HeaderMutation", 2), bodyMutation: of("BodyMutation", 3), clearRouteCache: bool(5) } },
  ImmediateResponse: { fields: { status: of("HttpStatus", 1), headers: of("HeaderMutation", 2), body: bytes(3), details: text(5) } },
  HttpStatus: { fields: { code: number(1) } },
  HeaderMutation: { fields: { setHeaders: list("HeaderValueOption", 1), removeHeaders: list("string", 2) } },
  HeaderValueOption: { fields: { header: of("HeaderValue", 1), appendAction: number(3) } },
  HeaderValue: { fields: { key: text(1), value: text(2), rawValue: bytes(3) } },
  HeaderMap: { fields: { headers: list("HeaderValue", 1) } },
  BodyMutation: { oneofs: { mutation: { oneof: ["body", "streamedResponse"] } }, fields: { body: bytes(1), streamedResponse: of("StreamedBodyResponse", 3) } },
  StreamedBodyResponse: { fields: { body: bytes(1), endOfStream: bool(2) } },
  Metadata: { fields: { filterMetadata: { keyType: "string", type: "google.protobuf.Struct", id: 1 } } },
  ExternalProcessor: {
    methods: { Process: { requestType: "ProcessingRequest", requestStream: true, responseType: "ProcessingResponse", responseStream: true } },
  },
};

const health = {
  HealthCheckRequest: { fields: { service: text(1) } },
  HealthCheckResponse: { fields: { status: number(1) } },
  Health: {
    methods: {
      Check: { requestType: "HealthCheckRequest", responseType: "HealthCheckResponse" },
      Watch: { requestType: "HealthCheckRequest", responseType: "HealthCheckResponse", responseStream: true },
    },
  },
};

/** The descriptor as JSON, in protobuf.js's form. */
export const messages = {
  nested: {
    google: { nested: { protobuf: { nested: struct } } },
    envoy: { nested: { service: { nested: { ext_proc: { nested: { v3: { nested: processing } } } } } } },
    grpc: { nested: { health: { nested: { v1: { nested: health } } } } },
  },
};

export type HeaderValue = { key: string; value?: string; rawValue?: Buffer };
export type HeaderMap = { headers?: HeaderValue[] };
export type Value = { stringValue?: string; listValue?: { values?: Value[] }; structValue?: Struct };
export type Struct = { fields?: Record<string, Value> };
export type HttpBody = { body?: Buffer; endOfStream?: boolean };
export type ProcessingRequest = {
  requestHeaders?: { headers?: HeaderMap; endOfStream?: boolean };
  responseHeaders?: { headers?: HeaderMap; endOfStream?: boolean };
  requestBody?: HttpBody;
  responseBody?: HttpBody;
  requestTrailers?: { trailers?: HeaderMap };
  responseTrailers?: { trailers?: HeaderMap };
  metadataContext?: { filterMetadata?: Record<string, Struct> };
};

export type HeaderMutation = { setHeaders?: { header: HeaderValue; appendAction: number }[]; removeHeaders?: string[] };
export type CommonResponse = {
  headerMutation?: HeaderMutation;
  bodyMutation?: { streamedResponse: { body: Buffer; endOfStream: boolean } };
  clearRouteCache?: boolean;
};
export type ProcessingResponse = {
  requestHeaders?: { response: CommonResponse };
  responseHeaders?: { response: CommonResponse };
  requestBody?: { response: CommonResponse };
  responseBody?: { response: CommonResponse };
  requestTrailers?: object;
  responseTrailers?: object;
  immediateResponse?: { status: { code: number }; headers: HeaderMutation; body: Buffer; details: string };
  dynamicMetadata?: Struct;
};
