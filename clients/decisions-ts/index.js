import create from "openapi-fetch";

export default function decisions(options) {
  return create({ baseUrl: "http://127.0.0.1:8082", ...options });
}
