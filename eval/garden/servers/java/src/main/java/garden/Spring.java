package garden;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.springframework.stereotype.Controller;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.servlet.config.annotation.EnableWebMvc;

/** The routes of the garden as annotations, matched by PathPattern. */
@Controller
@EnableWebMvc
public class Spring {
    @GetMapping("/v1/items")
    void items(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /v1/items"); }
    @PostMapping("/v1/items")
    void add(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "POST /v1/items"); }
    @GetMapping("/v1/items/search")
    void search(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /v1/items/search"); }
    @GetMapping("/v1/items/{id}")
    void item(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /v1/items/{id}"); }
    @GetMapping("/v1/items/{id}/parts/{part}")
    void part(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /v1/items/{id}/parts/{part}"); }
    @GetMapping("/v1/admin/users")
    void users(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /v1/admin/users"); }
    @GetMapping("/v1/admin/users/{id}")
    void user(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /v1/admin/users/{id}"); }
    @GetMapping("/v1/exports")
    void exports(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /v1/exports"); }
    @GetMapping("/v1/getThing")
    void thing(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /v1/getThing"); }
    @GetMapping("/public/{*path}")
    void open(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /public/{path...}"); }
    @GetMapping(path = "/rpc", params = "!action")
    void rpc(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /rpc"); }
    @GetMapping(path = "/rpc", params = "action")
    void action(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "GET /rpc"); }
    @PostMapping("/login")
    void login(HttpServletRequest q, HttpServletResponse r) throws IOException { Main.answer(q, r, "POST /login"); }
}
