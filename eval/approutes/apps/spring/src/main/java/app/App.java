package app;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PutMapping;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;

/** Routes of Spring in most of their shapes, each of which answers with its pattern; its actuator tells them. */
@SpringBootApplication
@RestController
public class App {
    public static void main(String[] args) { SpringApplication.run(App.class, args); }

    @GetMapping("/") String root() { return "/"; }
    @GetMapping("/v1/items/{id:[0-9]+}") String item() { return "/v1/items/{id:[0-9]+}"; }
    @GetMapping("/v1/items/{slug}") String slug() { return "/v1/items/{slug}"; }
    @GetMapping("/v1/items/search") String search() { return "/v1/items/search"; }
    @GetMapping("/v1/items/{id}/parts/{part}") String part() { return "/v1/items/{id}/parts/{part}"; }
    @PutMapping({"/v1/a", "/v1/b"}) String ab() { return "/v1/a and b"; }
    @GetMapping("/files/{*path}") String file() { return "/files/{*path}"; }
    @GetMapping("/files/new") String created() { return "/files/new"; }
    @GetMapping("/w/*/z") String star() { return "/w/*/z"; }
    @GetMapping("/x/**") String stars() { return "/x/**"; }
    @GetMapping("/v?/q") String letter() { return "/v?/q"; }
    @GetMapping("/a-{x}.{y}") String two() { return "/a-{x}.{y}"; }
    @RequestMapping("/any") String any() { return "/any"; }
    @GetMapping(path = "/rpc", params = "action=login") String login() { return "/rpc login"; }
    @GetMapping("/rpc") String rpc() { return "/rpc"; }
}
